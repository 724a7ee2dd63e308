"""`gpufence export`: a look as metrics, printed, written or served."""
