"""How much a channel carries at a ratio of signal to noise: a share of the capacity, averaged over fast fading."""

from __future__ import annotations

import math

THERMAL_NOISE_DBM_PER_HZ = -174.0


def sidelink_efficiency(bandwidth_hz: float) -> float:
    """Return what a 5G sidelink carries at most (bit/s/Hz): 3.0 in a channel below 20 MHz, 3.4 from there on.

    Derived for channels of 10 and 20 MHz with a spacing of 30 kHz, one layer: 64QAM at its highest rate carries
    5.55 bit per resource element (3GPP TS 38.214, Table 5.1.3.1-1, index 28: 6 bit at a code rate of 948/1024). Of
    the 14 symbols of a slot of 0.5 ms one sets the gain and one is a pause, so 12 carry 24 or 50 resource blocks of 12
    subcarriers; each block loses 12 elements to reference symbols, and the slot 360 to the control channel and about
    120 to the second control stage. That leaves 2,688 or 6,120 elements, and 29.9 or 68.0 Mbit/s.
    """
    return 3.0 if bandwidth_hz < 20e6 else 3.4


def noise_dbm(bandwidth_hz: float, noise_figure_db: float) -> float:
    """Return the receiver's thermal noise over a bandwidth (Hz), its noise figure included (dBm)."""
    return THERMAL_NOISE_DBM_PER_HZ + 10 * math.log10(bandwidth_hz) + noise_figure_db


def ergodic_bits(snr: float, fading_m: int) -> float:
    """Return log2(1 + SNR G) averaged over Nakagami fading G with mean 1 (bit/s/Hz).

    With b = m / SNR it is e^b (E_1(b) + ... + E_m(b)) / ln 2, E_k being the exponential integrals (M.-S. Alouini and
    A. J. Goldsmith, IEEE Trans. Vehicular Technology 48(4), 1999, Eq. 23 gives the case m = 1). A transfer takes
    seconds, in which the fading of a moving vehicle takes all its values; so it is not drawn.

    Args:
        snr: mean ratio of signal to noise, > 0; not in dB.
        fading_m: Nakagami's m, >= 1; 1 is Rayleigh's fading, 0 stands for none.
    """
    if not fading_m:
        return math.log1p(snr) / math.log(2)
    b = fading_m / snr
    return sum(_scaled_expn(k, b) for k in range(1, fading_m + 1)) / math.log(2)


def _scaled_expn(k: int, b: float) -> float:
    """Return e^b E_k(b); beyond 100 by its asymptotic series, where e^b would overflow and E_k vanish."""
    if b < 100:
        from scipy.special import expn  # noqa: PLC0415 - slow to load, and only fading needs it

        return math.exp(b) * float(expn(k, b))
    term = total = 1 / b
    for n in range(10):
        term *= -(k + n) / b
        total += term
    return total


def shannon_bps(
    snr_db: float, bandwidth_hz: float, efficiency: float, max_spectral_efficiency: float, fading_m: int = 0
) -> float:
    """Return B min(efficiency E[log2(1 + SNR G)], cap) (bit/s)."""
    return bandwidth_hz * min(efficiency * ergodic_bits(10 ** (snr_db / 10), fading_m), max_spectral_efficiency)
