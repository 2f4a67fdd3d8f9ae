# One image for every worker kind: `runtime worker KIND` selects the kind of a container.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 LOOPLINE_STATE=/state
WORKDIR /app

# `runtime worker judge` runs generated programs in it.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap \
 && rm -rf /var/lib/apt/lists/*

COPY constraints.txt pyproject.toml setup.py README.md ./
COPY loopline loopline
COPY bus bus
COPY agents agents
COPY workers workers
COPY runtime runtime
COPY trainers trainers
COPY bench bench
RUN pip install --constraint constraints.txt '.[torch,bench,tools,otel]' \
 && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin loopline \
 && mkdir /state /models && chown loopline /state /models

USER 10001
VOLUME /state
ENTRYPOINT ["runtime"]
CMD ["--help"]
