"""Sound as a model's input: recordings are read, resampled, turned into features, and put into words for a decoder."""

from __future__ import annotations

import math
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import to_numpy
from pyattnorg.capture.models import LoadedModel, quiet

_FULL = {1: 128.0, 2: 2.0**15, 4: 2.0**31}  # of a sample of so many bytes


def is_sound(inputs: Any) -> bool:
    """Whether these inputs are a recording: a path, samples, or ``{"audio": …, "text": …}``."""
    if isinstance(inputs, Mapping):
        return "audio" in inputs
    return isinstance(inputs, (str, Path, np.ndarray))


def sound_arguments(inputs: Any, loaded: LoadedModel) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """Arguments of the forward for a recording, and the names of the decoder's tokens, if it has a decoder.

    What the decoder is given is the text that came with the recording, or else what the model itself hears.
    """
    given = dict(inputs) if isinstance(inputs, Mapping) else {"audio": inputs}
    unknown = sorted(set(given) - {"audio", "text"})
    if unknown:
        raise ValueError(f"inputs: got {unknown} beside 'audio', expected 'text' at most")
    extractor = loaded.feature_extractor
    rate = int(extractor.sampling_rate)
    audio = given["audio"]
    samples = read_wave(Path(audio), rate) if isinstance(audio, (str, Path)) else _samples(audio)
    made = extractor(samples, sampling_rate=rate, return_tensors="pt")
    first = next(iter(loaded.model.parameters()))
    name = loaded.model.main_input_name
    features = made[name].to(first.device, first.dtype)
    config = loaded.model.config
    if getattr(config, "decoder_start_token_id", None) is None or not getattr(config, "is_encoder_decoder", False):
        if given.get("text") is not None:
            raise ValueError(
                f"inputs: got text beside a recording, {type(loaded.model).__name__} has no decoder for it"
            )
        return {name: features}, None
    text = given.get("text")
    text = heard(loaded, features) if text is None else str(text)
    ids = loaded.tokenizer(text, return_tensors="pt")["input_ids"]
    limit = getattr(config, "max_target_positions", None)
    if limit is not None and ids.shape[1] > limit:
        raise ValueError(f"inputs: the text has {ids.shape[1]} tokens, the decoder sees at most {limit}; shorten it")
    names = tuple(str(t) for t in loaded.tokenizer.convert_ids_to_tokens(ids[0].tolist()))
    return {name: features, "decoder_input_ids": ids.to(first.device)}, names


def heard(loaded: LoadedModel, features: Any) -> str:
    """The words that the model hears."""
    with quiet():
        ids = loaded.model.generate(features)
    text = str(loaded.tokenizer.decode(ids[0], skip_special_tokens=True)).strip()
    if not text:
        raise ValueError("inputs: the model hears no words in this recording; give them as {'audio': …, 'text': …}")
    return text


def _samples(audio: Any) -> NDArray[np.float32]:
    samples = to_numpy(audio, "inputs").astype(np.float32)
    if samples.ndim != 1 or not samples.size:
        raise ValueError(f"inputs: got samples of shape {samples.shape}, expected (samples,) of one channel")
    if not np.isfinite(samples).all():
        raise ValueError("inputs: got samples that are NaN or infinite, expected finite ones between -1 and 1")
    return samples


def read_wave(path: Path, rate: int) -> NDArray[np.float32]:
    """A WAV file as one channel of numbers between -1 and 1, at `rate` samples a second.

    Raises
    ------
    FileNotFoundError, ValueError
        There is no such file, or it is no PCM file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"inputs: {path} does not exist, expected a WAV file")
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, its_rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            content = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(
            f"inputs: {path} could not be read as a WAV file ({error or 'it ends early'}); convert it, such as with "
            "ffmpeg -i FILE -ar 16000 -ac 1 out.wav"
        ) from None
    if width not in _FULL:
        raise ValueError(f"inputs: {path} has samples of {8 * width} bits, expected 8, 16 or 32")
    numbers = np.frombuffer(content, {1: "<u1", 2: "<i2", 4: "<i4"}[width]).astype(np.float64)
    numbers = (numbers - (128 if width == 1 else 0)) / _FULL[width]
    numbers = numbers[: len(numbers) // channels * channels].reshape(-1, channels).mean(1)
    if not len(numbers):
        raise ValueError(f"inputs: {path} holds no sound")
    if its_rate != rate:
        from scipy.signal import resample_poly

        common = math.gcd(its_rate, rate)
        numbers = resample_poly(numbers, rate // common, its_rate // common)
    return np.asarray(numbers, np.float32)


__all__ = ["heard", "is_sound", "read_wave", "sound_arguments"]
