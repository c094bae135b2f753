#pragma once

#include <torch/version.h>

#include "registry/public_headers.h"  // made by the build

#define TRAINRUN_TEXT_OF(number) #number
#define TRAINRUN_SERIES(major, minor) TRAINRUN_TEXT_OF(major) "." TRAINRUN_TEXT_OF(minor)
/// "2.15": patch releases of LibTorch have the same headers.
#define TRAINRUN_LIBTORCH_SERIES TRAINRUN_SERIES(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR)

/// Changes with everything that could make an older plugin misbehave: the versions of trainrun and LibTorch, and the
/// headers that a plugin is compiled against.
#define TRAINRUN_ABI \
  "trainrun " TRAINRUN_VERSION ", LibTorch " TRAINRUN_LIBTORCH_SERIES ", headers " TRAINRUN_PUBLIC_HEADERS

/// The section of a plugin's file that holds TRAINRUN_ABI, which is read before any of its code runs.
#define TRAINRUN_PLUGIN_SECTION ".trainrun_plugin"
