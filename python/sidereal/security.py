"""How the members of a cluster know one another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from . import _native
from .errors import InvalidArgumentError


@dataclass(frozen=True, kw_only=True)
class SecurityOptions:
    """What servers and their clients want of one another. One of these:

    * a secret, `secret` or the file `secret_file`: at least 16 random bytes, the same on every
      member (`openssl rand -hex 32`). Connections are encrypted, both sides prove that they have
      it, and it is never sent;
    * certificates in PEM form: `certificate_file`, `key_file` and `ca_file`, the authority that
      signed those of all members (mutual TLS);
    * nothing: servers listen on this machine's loopback only;
    * `insecure`: everybody who can connect may do everything, off loopback too.
    """

    secret: str = field(default="", repr=False)
    secret_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    insecure: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> SecurityOptions:
        """The secret of SIDEREAL_SECRET_FILE or SIDEREAL_SECRET, which `sidereal launch` sets;
        without them, nothing."""
        variables = os.environ if environment is None else environment
        file = variables.get("SIDEREAL_SECRET_FILE", "")
        secret = variables.get("SIDEREAL_SECRET", "")
        if file and secret:
            raise InvalidArgumentError(
                "SIDEREAL_SECRET_FILE and SIDEREAL_SECRET are both set; unset one of them"
            )
        return cls(secret=secret, secret_file=file)

    def _to_native(self) -> _native.SecurityOptions:
        return _native.SecurityOptions(
            secret=self.secret,
            secret_file=os.fspath(self.secret_file),
            certificate_file=os.fspath(self.certificate_file),
            key_file=os.fspath(self.key_file),
            ca_file=os.fspath(self.ca_file),
            insecure=self.insecure,
        )


__all__ = ["SecurityOptions"]
