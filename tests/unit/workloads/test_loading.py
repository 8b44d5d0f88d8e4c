"""Loaders: which rank sees which sample when, what is held out, how long a step waits, and paths that are wrong."""

import itertools
import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from made_context import made_context
from torch.utils.data import Dataset

from rtxscale.rank.loop import one_line
from rtxscale.spec.workload import LanguageWorkload, VisionWorkload
from rtxscale.workloads import inputs
from rtxscale.workloads.data.loading import Endless, Loaded
from rtxscale.workloads.data.sets import image_sets, token_sets
from rtxscale.workloads.files import data as data_files
from rtxscale.workloads.files.data import DataError
from rtxscale.workloads.files.script import DIRECTORY_VARIABLE
from rtxscale.workloads.inputs import complaint
from rtxscale.workloads.language import Language
from rtxscale.workloads.registry import complaints
from rtxscale.workloads.vision import Vision

SMALL = {"kind": "vision", "model": "test_resnet", "image_size": 32, "classes": 10, "precision": "fp32"}
TINY = {"kind": "language", "size": "tiny", "context": 16, "precision": "fp32"}


def vision(**fields):
    return VisionWorkload.model_validate(SMALL | {"batch_per_gpu": 4, "loader_workers": 0} | fields)


def language(**fields):
    return LanguageWorkload.model_validate(TINY | {"batch_per_gpu": 4, "loader_workers": 0} | fields)


def context(workload, rank=0, world=1, seed=0):
    return made_context(workload, rank=rank, world=world, seed=seed)


class Numbered(Dataset):
    """Sample i is the number i and who made it."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        return torch.tensor([place, os.getpid()])


@pytest.fixture
def images(tmp_path, monkeypatch):
    """Three classes of ten tiny PNG files each, beside a sweep."""
    from PIL import Image

    for number, name in enumerate(("ant", "bee", "cat")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for place in range(10):
            shade = 80 * number + place
            Image.new("RGB", (20, 24), (shade, shade, shade)).save(tmp_path / "pictures" / name / f"{place}.png")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path


def test_ranks_share_an_epoch_out_and_the_next_one_has_another_order():
    parts = [list(itertools.islice(Endless(Numbered(10), context(vision(), rank, 3), 5), 6)) for rank in range(3)]
    first, second = [part[:3] for part in parts], [part[3:] for part in parts]
    for epoch in (first, second):
        every = sorted(itertools.chain(*epoch))
        assert len(every) == len(set(every)) == 9, "the tenth sample is nobody's: each rank has as many"
    assert first != second


def test_an_order_is_its_seeds_alone():
    def of(seed):
        return list(itertools.islice(Endless(Numbered(50), context(vision(), 1, 2), seed), 30))

    assert of(1) == of(1)
    assert of(1) != of(2)


def test_workers_load_in_processes_of_their_own_and_end_with_the_loader():
    workload = vision(loader_workers=1)
    loaded = Loaded(Numbered(8), workload, context(workload), 4)
    batches = [loaded.take() for _ in range(4)]
    (maker,) = {int(batch[0, 1]) for batch in batches}
    assert maker != os.getpid()
    assert sorted(int(place) for batch in batches[:2] for place in batch[:, 0]) == list(range(8))
    assert loaded.waited_s() > 0
    assert loaded.waited_s() == 0
    loaded.close()
    loaded.close()
    with pytest.raises(ProcessLookupError):
        os.kill(maker, 0)


def test_a_step_says_how_long_it_waited_for_its_loader(monkeypatch):
    running = Vision().prepare(context(vision(data="digits", accumulation=2)))
    waits = [running.step() for _ in range(2)]
    assert all(wait > 0 for wait in waits)
    (row,) = [row for row in running.attest() if row.subject == "workload.data"]
    assert row.observed.startswith("digits of scikit-learn ")
    assert "1,797 images" in row.observed
    assert row.observed.endswith("one in 10 held out; no workers, memory not pinned")
    running.close()
    still = Vision().prepare(context(vision()))
    assert still.step() == 0
    still.close()


def test_digits_are_the_digits_enlarged():
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    sets = image_sets(vision(data="digits"))
    assert (len(sets.training), len(sets.held_out)) == (1797 - 179, 179)
    image, label = sets.held_out[0]
    assert label == labels[9]
    assert image.shape == (3, 32, 32)
    blue = image[2] * 0.225 + 0.406
    small = torch.from_numpy((pixels[9].reshape(8, 8) * (255 / 16)).astype(np.uint8) / 255).float()
    assert torch.allclose(blue, small.repeat_interleave(4, 0).repeat_interleave(4, 1), atol=1e-6)


def test_an_image_folder_is_cropped_and_what_is_held_out_is_never_trained_on(images):
    sets = image_sets(vision(data="images", data_path="pictures"))
    assert (len(sets.training), len(sets.held_out)) == (27, 3)
    assert not set(sets.training.indices) & set(sets.held_out.indices)
    image, label = sets.held_out[1]
    assert (tuple(image.shape), label) == ((3, 32, 32), 1)
    assert "30 images in 3 classes, names and sizes SHA-256 " in sets.identity
    running = Vision().prepare(context(vision(data="images", data_path="pictures")))
    running.step()
    assert running.loss() > 0
    running.close()


def test_an_image_folder_may_say_itself_what_is_held_out(images):
    (images / "divided").mkdir()
    (images / "divided" / "train").symlink_to(images / "pictures")
    (images / "divided" / "val").symlink_to(images / "pictures")
    sets = image_sets(vision(data="images", data_path="divided"))
    assert (len(sets.training), len(sets.held_out)) == (30, 30)
    assert sets.identity.endswith("its own val held out")


def test_classes_behind_symbolic_links_are_found(images):
    for name in ("ant", "bee"):
        (images / "linked" / name).mkdir(parents=True)
        (images / "linked" / name / "all").symlink_to(images / "pictures" / name)
    assert complaint(vision(data="images", data_path="linked"), images) == ""
    assert len(image_sets(vision(data="images", data_path="linked")).training) == 18


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        (["val/bee"], "found the classes bee in one of train and val of divided only"),
        (["val/ant", "val/bee", "val/cat"], "found no sub-directories in divided/val"),
        (["val/bee/*"], "found no images in bee of divided/val"),
        (["val"], "found train and no val in divided; expected both"),
        (["train"], "found val and no train in divided; expected both"),
        (["train", "val", "fly"], "found fewer than 10 images in divided; expected at least as many"),
    ],
)
def test_a_folder_of_which_nothing_can_be_held_out_is_named(taken, said, images):
    divided = images / "divided"
    for part in ("train", "val"):
        shutil.copytree(images / "pictures", divided / part)
    if "fly" in taken:
        shutil.copytree(images / "pictures" / "ant", divided / "fly", ignore=lambda *_: ["0.png"])
    for pattern in taken:
        for place in divided.glob(pattern) if pattern != "fly" else ():
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert said in complaint(vision(data="images", data_path="divided"), images)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_cannot_be_decoded_is_named(workers, images):
    for file in images.glob("pictures/*/*.png"):
        file.write_bytes(file.read_bytes()[:60])
    workload = vision(data="images", data_path="pictures", loader_workers=workers)
    running = Vision().prepare(context(workload))
    with pytest.raises(DataError) as caught:
        running.step()
    running.close()
    assert one_line(caught.value).startswith(f"DataError: workload.data_path: found {images / 'pictures'}")
    assert ".png, which cannot be decoded (" in one_line(caught.value)


def test_a_token_that_the_model_does_not_know_is_named_wherever_it_stands(tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    for wrong, place in ((256, 250), (-1, 310)):
        tokens = np.zeros(330, np.int32)
        tokens[place] = wrong
        np.save(tmp_path / "t.npy", tokens)
        monkeypatch.setattr(inputs, "outside_vocabulary", lambda *_: "")  # a large file is looked at in part only
        sets = token_sets(language(data="tokens", data_path="t.npy"))
        part = sets.training if place < 297 else sets.held_out
        with pytest.raises(
            DataError, match=f"found the token {wrong}, and a vocabulary of 256; expected tokens from 0"
        ):
            [part[number] for number in range(len(part))]


def test_of_many_tokens_evenly_spaced_pieces_are_told(monkeypatch):
    tokens = np.arange(50, dtype=np.uint16)
    whole = data_files.array_fingerprint(tokens)
    assert whole == data_files.digest([tokens.tobytes()])
    monkeypatch.setattr(data_files, "PIECE_BYTES", 4)
    monkeypatch.setattr(data_files, "WHOLE_BYTES", 50)
    told = data_files.array_fingerprint(tokens)
    assert (
        told == data_files.digest(tokens[start : start + 2].tobytes() for start in range(0, 50, 4)) + " of one in 2 MiB"
    )


@pytest.mark.parametrize("suffix", ["bin", "npy"])
def test_tokens_are_read_in_place_and_the_last_tenth_is_held_out(suffix, tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    tokens = (np.arange(330) % 250).astype(np.uint16)
    if suffix == "bin":
        (tmp_path / "t.bin").write_bytes(b"".join(int(token).to_bytes(2, "little") for token in tokens))
    else:
        np.save(tmp_path / "t.npy", tokens)
    sets = token_sets(language(data="tokens", data_path=f"t.{suffix}"))
    assert (len(sets.training), len(sets.held_out)) == (297 // 16, 33 // 16)
    assert sets.training[2].tolist() == list(range(32, 48))
    assert sets.held_out[0].tolist() == [place % 250 for place in range(297, 313)]
    travelled = pickle.dumps(sets.held_out)
    assert pickle.loads(travelled)[1].tolist() == sets.held_out[1].tolist()  # noqa: S301 - our own
    assert f"t.{suffix}".encode() in travelled, "a worker opens the file itself"


def test_a_directory_of_more_text_than_fits_into_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    (tmp_path / "texts").mkdir()
    for name in ("a.txt", "b.txt"):
        with (tmp_path / "texts" / name).open("wb") as sparse:
            sparse.truncate(3 << 29)
    with pytest.raises(DataError, match=r"found 3\.0 GiB of text in the directory texts.*at most 2 GiB.*with cat"):
        token_sets(language(data="bytes", data_path="texts"))


def test_text_is_tokenised_by_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "b.txt").write_text("second" * 40)
    (tmp_path / "texts" / "a.txt").write_text("first ")
    sets = token_sets(language(data="bytes", data_path="texts"))
    assert bytes(sets.training[0].tolist()) == b"first secondseco"
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "all").symlink_to(tmp_path / "texts")
    (tmp_path / "linked" / "circle").symlink_to(tmp_path / "linked")
    linked = token_sets(language(data="bytes", data_path="linked"))
    assert linked.identity == sets.identity
    one = token_sets(language(data="bytes", data_path="texts/b.txt"))
    assert b"b.txt" in pickle.dumps(one.training), "a worker opens a single file itself"
    assert bytes(one.training[0].tolist()) == b"secondsecondseco"


def test_a_decoder_learns_the_standard_library():
    running = Language().prepare(context(language(data="stdlib", context=64)))
    running.step()
    before = running.loss()
    for _ in range(25):
        running.step()
    assert running.loss() < before - 0.2
    assert running.work_per_step == 4 * 64
    (row,) = [row for row in running.attest() if row.subject == "workload.data"]
    assert row.observed.startswith("bytes of Python's standard library, ")
    running.close()
    assert all(path.suffix == ".py" for path in data_files.standard_library_files())


def test_a_seed_is_another_order_of_the_same_data():
    def losses(seed):
        running = Language().prepare(context(language(data="stdlib"), seed=seed))
        found = []
        for _ in range(3):
            running.step()
            found.append(running.loss())
        running.close()
        return found

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


def wrong(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "ant").mkdir()
    (tmp_path / "none.bin").write_bytes(b"")
    (tmp_path / "odd.bin").write_bytes(b"abc")
    (tmp_path / "few.bin").write_bytes(b"ab" * 20)
    (tmp_path / "large.bin").write_bytes(b"\xff\xff" * 2000)
    (tmp_path / "text.txt").write_text("x" * 500)
    np.save(tmp_path / "square.npy", np.zeros((40, 40), np.int32))
    np.save(tmp_path / "pickled.npy", np.array([{}] * 400), allow_pickle=True)
    np.save(tmp_path / "below.npy", np.full(400, -1))
    np.savez(tmp_path / "archive.npz", np.zeros(400, np.int32))
    (tmp_path / "archive.npz").rename(tmp_path / "archive.npy")
    whole = (tmp_path / "below.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(whole[:-1])
    (tmp_path / "header.npy").write_bytes(whole.replace(b"'shape'", b"(((((((")[:2000])


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (vision(data="images"), "data_path: found nothing"),
        (vision(data="images", data_path="nowhere"), "found no nowhere beside the sweep file"),
        (vision(data="images", data_path="empty"), "found no sub-directories in empty"),
        (vision(data="images", data_path="flat"), "found no images in ant of flat"),
        (vision(data="images", data_path="text.txt"), "found the file text.txt; expected a directory"),
        (vision(data="digits", classes=7), "classes: found 7, and 10 classes in the data"),
        (language(data="tokens", data_path="none.bin"), "found the empty file none.bin"),
        (language(data="tokens", data_path="odd.bin"), "found 3 bytes in odd.bin"),
        (language(data="tokens", data_path="few.bin"), "found 20 tokens; expected more than ten sequences of 16"),
        (language(data="tokens", data_path="large.bin"), "found the token 65,535, and a vocabulary of 256"),
        (language(data="tokens", data_path="text.txt"), "expected a file of tokens"),
        (language(data="tokens", data_path="square.npy"), "found 2 dimensions of int32"),
        (language(data="tokens", data_path="pickled.npy"), "found pickled.npy, which is no whole array of numbers"),
        (language(data="tokens", data_path="archive.npy"), "found archive.npy, which is no whole array of numbers"),
        (language(data="tokens", data_path="short.npy"), "found short.npy, which is no whole array of numbers"),
        (language(data="tokens", data_path="header.npy"), "found header.npy, which is no whole array of numbers"),
        (language(data="tokens", data_path="below.npy"), "found the token -1, and a vocabulary of 256"),
        (language(data="bytes", data_path="empty"), "found no tokens in empty"),
    ],
)
def test_data_that_cannot_be_trained_on_are_named_before_anything_runs(workload, said, tmp_path):
    wrong(tmp_path)
    assert said in complaint(workload, tmp_path)
    assert [text for text in complaints([workload], str(tmp_path)) if said in text]


@pytest.mark.parametrize(
    "workload", [vision(), vision(data="digits"), language(data="synthetic"), language(data="stdlib")]
)
def test_data_that_can_be_trained_on_have_no_complaint(workload, tmp_path):
    assert complaint(workload, tmp_path) == ""


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(inputs.importlib.util, "find_spec", lambda name: None)
    assert complaint(vision(data="digits"), tmp_path) == inputs.DIGITS_MISSING


@pytest.mark.parametrize("path", ["/data/images", "~/images", "a\0b"])
def test_a_path_of_one_machine_only_is_no_part_of_a_sweep(path):
    with pytest.raises(ValueError, match="data_path"):
        vision(data="images", data_path=path)


def test_a_rank_without_a_sample_is_refused():
    with pytest.raises(ValueError, match="fewer samples than the 2 ranks"):
        Loaded(Numbered(1), vision(), context(vision(), 0, 2), 1)
    with pytest.raises(DataError):
        data_files.data_place("", data_files.Path())
