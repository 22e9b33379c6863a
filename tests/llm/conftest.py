import pytest


def allow(patch, folder):
    """Set a key, and read no certificates, which takes a client longer than all else."""
    patch.setenv("OPENAI_API_KEY", "secret")
    patch.delenv("SSL_CERT_FILE", raising=False)
    patch.setenv("SSL_CERT_DIR", str(folder))


@pytest.fixture(autouse=True)
def key(monkeypatch, tmp_path):
    allow(monkeypatch, tmp_path)
