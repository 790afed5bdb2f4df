"""`gpdsl serve`: offer a saved fit to other tools, as a server that speaks the UM-Bridge protocol."""

from __future__ import annotations

import argparse

from gpdsl.cli.options import add_forward
from gpdsl.errors import GpdslError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The fit, what to offer, and where to listen."""
    parser.add_argument("fit", metavar="FILE.gpfit")
    add_forward(parser)
    parser.add_argument("--names", metavar="A,B", help="outputs, lets and latents to offer (default: all)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=4242, help="port to listen on, 0 for any (default: 4242)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if not 0 <= arguments.port <= 65535:
        raise GpdslError(f"--port {arguments.port}: expected a number from 0 to 65535")
    names = None if arguments.names is None else arguments.names.split(",")

    import gpdsl
    from gpdsl.cli.options import run_forward_files
    from gpdsl.inference.watch import loading

    with loading():
        from gpdsl.forward.server import make_server
        from gpdsl.results.serving import offered

    run_forward_files(arguments.forward)
    models = offered(gpdsl.load_fit(arguments.fit), names)
    with make_server(models, arguments.host, arguments.port) as server:
        host, port = server.server_address[:2]
        print(f"serving {', '.join(models)} at http://{host!s}:{port}; Ctrl-C ends", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
    return 0
