"""What training frameworks need beside a data set; each module imports its own framework."""
