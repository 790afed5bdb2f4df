"""Row variables as latents: an independent Normal per row is white noise over the rows, sd^2 * White()."""

from __future__ import annotations

from gpdsl.language import model as m


def process_of(row: m.Row) -> m.Latent:
    """The latent that a row variable is: its mean is that of its prior, its variance a factor of white noise."""
    arguments = row.distribution.arguments
    noise = m.KernelCall(row.span, "White", {})
    kernel = m.KernelScale(row.span, arguments["sd"], m.KernelScale(row.span, arguments["sd"], noise))
    return m.Latent(row.name, row.span, row.axes, (), arguments["mean"], kernel)
