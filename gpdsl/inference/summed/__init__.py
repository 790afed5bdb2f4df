"""Normal observations through inducing features that no parameter enters: all rows are summed up once."""
