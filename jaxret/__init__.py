"""jaxret: tool retrieval that keeps learning after deployment."""
