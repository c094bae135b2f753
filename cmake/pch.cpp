// Gives the target that owns the precompiled header (pch.h) something to compile.
