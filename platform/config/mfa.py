"""Second factors: their secrets are kept as the vault keeps secrets."""

from __future__ import annotations

import base64

from allauth.mfa.adapter import DefaultMFAAdapter

from apps.workflows import vault


class MfaAdapter(DefaultMFAAdapter):
    def encrypt(self, text: str) -> str:
        sealed = vault.encrypt(vault.Purpose.MFA, "mfa", text.encode())
        return f"{sealed.key_id}:{base64.b64encode(sealed.ciphertext).decode()}"

    def decrypt(self, encrypted_text: str) -> str:
        key_id, _, text = encrypted_text.partition(":")
        return vault.decrypt(vault.Purpose.MFA, "mfa", base64.b64decode(text), key_id).decode()
