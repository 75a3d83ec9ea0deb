"""What people touch: command line, local cluster, reports."""
