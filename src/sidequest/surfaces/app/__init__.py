"""What the web app's pages and its JSON API share: one application for each process, and what it shows."""
