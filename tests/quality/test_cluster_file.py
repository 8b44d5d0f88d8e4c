"""`cluster.yaml` is what Ray's own validator accepts, as it stands and with the cloud variant in its comments."""

from pathlib import Path

import pytest
import yaml

TEXT = (Path(__file__).parents[2] / "cluster.yaml").read_text()
CLOUD = yaml.safe_load("\n".join(line[3:] for line in TEXT.splitlines() if line.startswith("#| ")))


def on_premises():
    return yaml.safe_load(TEXT)


def in_the_cloud():
    kept = {name: value for name, value in on_premises().items() if name != "min_workers"}
    return {**kept, **CLOUD}


@pytest.mark.filterwarnings("ignore")  # the validator's own imports
@pytest.mark.parametrize("config", [on_premises(), in_the_cloud()], ids=["on premises", "in the cloud"])
def test_rays_own_validator_accepts_it(config):
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(config))


def test_rays_validator_would_refuse_a_mistake():
    from ray.autoscaler._private.util import validate_config

    with pytest.raises(Exception, match="provide"):
        validate_config({**on_premises(), "provide": {"type": "local"}})


def test_every_ray_process_asks_for_the_token_and_the_dashboard_stays_on_loopback():
    config = on_premises()
    commands = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    assert all("RAY_AUTH_MODE=token" in command for command in commands)
    assert all("--dashboard-host=127.0.0.1" in command for command in config["head_start_ray_commands"])
    assert "~/.ray/auth_token" in config["file_mounts"]
    assert all("PATH=~/rtxscale/.venv/bin:$PATH " in command for command in commands), "jobs find `python` there"
    assert config["auth"]["ssh_private_key"], "the head starts the workers with it"
    assert in_the_cloud()["head_start_ray_commands"] == config["head_start_ray_commands"]
