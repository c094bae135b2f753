#pragma once

#include <torch/version.h>

#include "registry/public_headers.h"  // made by the build

/// Changes with everything that could make an older plugin misbehave: the versions of trainrun and LibTorch, and the
/// headers that a plugin is compiled against.
#define TRAINRUN_ABI "trainrun " TRAINRUN_VERSION ", LibTorch " TORCH_VERSION ", headers " TRAINRUN_PUBLIC_HEADERS

/// The section of a plugin's file that holds TRAINRUN_ABI, which is read before any of its code runs.
#define TRAINRUN_PLUGIN_SECTION ".trainrun_plugin"
