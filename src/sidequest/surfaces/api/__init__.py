"""The JSON API: one module for each noun, all of them over what `surfaces/app` offers the pages too."""
