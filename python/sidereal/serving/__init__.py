"""What `sidereal serve-model` runs: a server of predictions in TensorFlow Serving's forms. It needs
the packages of the extra `serving`."""
