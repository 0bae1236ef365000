# syntax=docker/dockerfile:1
# One image for initializer, web, workers and beat; nothing in it needs root or a writable disk.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/kvaudit/.venv
ENV PATH=/opt/kvaudit/.venv/bin:$PATH
WORKDIR /opt/kvaudit
# First what changes seldom: every package checked against its hash.
COPY requirements/server.txt requirements/server.txt
RUN pip install --require-hashes --no-deps -r requirements/server.txt
COPY pyproject.toml README.md LICENSE manage.py ./
COPY kvaudit kvaudit
COPY templates templates
COPY static static
RUN pip install --no-index --no-deps --no-build-isolation --editable .
# Static files need settings but none of their secrets: these exist in this one step only.
RUN SECRET_KEY="$(python -c 'import secrets; print(secrets.token_urlsafe(64))')" \
    ENCRYPTION_KEY="$(python -c 'import base64, os; print(base64.urlsafe_b64encode(os.urandom(32)).decode())')" \
    ALLOWED_HOSTS=localhost DATABASE_URL=postgres://build@localhost/build BROKER_URL=redis://localhost/0 \
    STATIC_ROOT=/opt/kvaudit/staticfiles \
    python manage.py collectstatic --noinput -v 0

FROM python:3.13-slim
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin kvaudit
# A new volume takes this owner.
RUN install -d -o 10001 -g 10001 /head
COPY --from=build --chown=root:root /opt/kvaudit /opt/kvaudit
WORKDIR /opt/kvaudit
ENV PATH=/opt/kvaudit/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=kvaudit.settings \
    STATIC_ROOT=/opt/kvaudit/staticfiles
USER 10001:10001
EXPOSE 8000
CMD ["gunicorn", "-c", "python:kvaudit.server.ops.gunicorn_conf"]
