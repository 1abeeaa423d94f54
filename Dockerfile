# docker build -t vnetsim .
# docker run --rm -v "$PWD:/work" vnetsim run scenarios/intersection.sumocfg
FROM python:3.11-slim
# what SUMO's programs take from the system; the rest comes with their Python package
RUN apt-get update && apt-get install -y --no-install-recommends libatomic1 libgl1 libx11-6 libxext6 libxrender1
# PyTorch for CPUs alone, 6 GB less: --build-arg PIP_EXTRA_INDEX_URL=(the index that PyTorch's page gives for "CPU")
ARG PIP_EXTRA_INDEX_URL
COPY . /src
RUN pip install --no-cache-dir -c /src/constraints.txt "/src[tensorboard]"
WORKDIR /work
ENTRYPOINT ["vnetsim"]
