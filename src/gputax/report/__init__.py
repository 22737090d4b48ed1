"""From results on disk to what people read: one table model, one set of chart specs, and exporters for both."""
