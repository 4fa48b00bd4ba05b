"""The ordered steps that bring a database to today's tables; a released step is never edited again."""
