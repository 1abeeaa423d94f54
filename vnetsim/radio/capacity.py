"""Rate of a channel at a signal-to-noise ratio: a share of the Shannon capacity."""

from __future__ import annotations

import math

THERMAL_NOISE_DBM_PER_HZ = -174.0


def sidelink_efficiency(bandwidth_hz: float) -> float:
    """Return the highest spectral efficiency of a 5G sidelink (bit/s/Hz): 3.0 below 20 MHz, else 3.4.

    Derived for channels of 10 and 20 MHz with a spacing of 30 kHz and one layer. 64QAM at its highest rate carries
    5.55 bit per resource element (3GPP TS 38.214, Table 5.1.3.1-1, index 28: 6 bit at a code rate of 948/1024). A slot
    of 0.5 ms has 14 symbols; one sets the gain and one is a pause, so 12 carry 24 or 50 resource blocks of 12
    subcarriers. Each block loses 12 elements to reference symbols, and the slot 360 to the control channel and about
    120 to the second control stage. That leaves 2,688 or 6,120 elements, and 29.9 or 68.0 Mbit/s.
    """
    return 3.0 if bandwidth_hz < 20e6 else 3.4


def noise_dbm(bandwidth_hz: float, noise_figure_db: float) -> float:
    """Return a receiver's thermal noise (dBm) over a bandwidth (Hz), its noise figure (dB) included."""
    return THERMAL_NOISE_DBM_PER_HZ + 10 * math.log10(bandwidth_hz) + noise_figure_db


def shannon_bps(snr_db: float, bandwidth_hz: float, efficiency: float, max_spectral_efficiency: float) -> float:
    """Return the rate B min(efficiency log2(1 + SNR), cap) (bit/s); SNR in dB, B in Hz, the cap in bit/s/Hz."""
    snr = 10 ** (snr_db / 10)
    return bandwidth_hz * min(efficiency * (math.log1p(snr) / math.log(2)), max_spectral_efficiency)
