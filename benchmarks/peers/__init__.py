"""Independent implementations that gpdsl is compared with; none of them imports gpdsl."""
