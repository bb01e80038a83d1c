import httpx
from evalward_local.peer_servers import PeerServer


def test_mlflow_answers(mlflow_server: PeerServer) -> None:
    assert httpx.get(f"{mlflow_server.url}/version").text.startswith("3.")


def test_phoenix_answers(phoenix_server: PeerServer) -> None:
    # By name: other tests have made projects of theirs, and the list begins with the newest.
    assert httpx.get(f"{phoenix_server.url}/v1/projects/default").json()["data"]["name"] == "default"
