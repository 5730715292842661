"""Import manifests from the file layouts of public benchmarks, and from any CSV."""
