"""What ``tests/gpu_check.py`` and the benchmarks measure; needs torch, torchvision, scipy, numpy and safetensors alone.

On the path as ``device_checks``: pytest puts ``tests/`` there, as does a script that lies in it.
"""
