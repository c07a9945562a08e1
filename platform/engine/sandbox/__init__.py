"""How a step is confined: policy -> arguments -> launch, and the only way into folders a step can write."""

from __future__ import annotations
