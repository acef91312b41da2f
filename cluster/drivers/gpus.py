"""The GPUs of this machine, through NVIDIA's library where a driver answers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from cluster.health.node import Gpu

_MIB = 1024 * 1024


class Gpus(NamedTuple):
    """``absent`` is a code that says why there are none; empty where there are."""

    cards: list[Gpu]
    driver: str = ""
    absent: str = ""


def gpus_read() -> Gpus:
    """What the cards tell now. Never raises: a machine without any is a fact."""
    # Read late: few machines have a card, and the library is a long one.
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return Gpus([], absent="no_driver")
    try:
        count = nvml.nvmlDeviceGetCount()
        cards = gpus_parse(_reading(nvml, index) for index in range(count))
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        return Gpus(cards, driver, "" if cards else "no_card")
    except nvml.NVMLError:
        return Gpus([], absent="unreadable")
    finally:
        nvml.nvmlShutdown()


def gpus_parse(readings: Iterable[Mapping[str, Any]]) -> list[Gpu]:
    """Cards from the library's raw readings: bytes of memory, milliwatts, and None
    for whatever the card does not support."""
    return [
        Gpu(
            index=int(reading["index"]),
            name=_text(reading.get("name")),
            uuid=_text(reading.get("uuid")),
            memory_total_mb=_scaled(reading.get("memory_total"), 1 / _MIB),
            memory_used_mb=_scaled(reading.get("memory_used"), 1 / _MIB),
            utilization_percent=_scaled(reading.get("utilization"), 1),
            temperature_c=_scaled(reading.get("temperature"), 1),
            power_w=_scaled(reading.get("power_mw"), 1 / 1000),
        )
        for reading in readings
    ]


def _reading(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def told(read: Callable[..., Any], *more: Any) -> Any:
        try:
            return read(handle, *more)
        except nvml.NVMLError:
            return None

    memory = told(nvml.nvmlDeviceGetMemoryInfo)
    return {
        "index": index,
        "name": told(nvml.nvmlDeviceGetName),
        "uuid": told(nvml.nvmlDeviceGetUUID),
        "memory_total": getattr(memory, "total", None),
        "memory_used": getattr(memory, "used", None),
        "utilization": getattr(told(nvml.nvmlDeviceGetUtilizationRates), "gpu", None),
        "temperature": told(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        "power_mw": told(nvml.nvmlDeviceGetPowerUsage),
    }


def _text(value: Any) -> str:
    """Older releases of the library answer bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else round(float(value) * factor, 1)
