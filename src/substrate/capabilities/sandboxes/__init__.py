"""Where scripts run, one sandbox a file."""
