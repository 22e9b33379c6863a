"""Who is found for a query: first stages over the catalogue, second stages over candidates."""
