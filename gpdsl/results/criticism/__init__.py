"""What a fit is worth: rows left out, fits compared, data drawn anew beside those observed, findings."""
