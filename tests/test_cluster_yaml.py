"""`cluster.yaml` is what Ray's launcher accepts, and starts Ray the way that we need."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent


@pytest.mark.req("OPS-3")
@pytest.mark.filterwarnings("ignore")
def test_ray_accepts_the_cluster_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config  # noqa: TID251

    config = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
    prepared = prepare_config(config)
    validate_config(prepared)
    assert prepared["provider"]["type"] == "local"
    broken = {**config, "no_such_key": 1}
    with pytest.raises(Exception, match="no_such_key"):
        validate_config(prepare_config(broken))


@pytest.mark.req("OPS-3")
def test_the_head_has_two_gpus_a_token_and_no_usage_reports() -> None:
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
    (command,) = config["head_start_ray_commands"]
    for part in ("--num-gpus=2", "RAY_AUTH_MODE=token", "--disable-usage-stats", "--head"):
        assert part in command
    # Ports that other software takes by default.
    assert "8265 " not in command.replace("48265", "")
    assert "--port=46379" in command
