#pragma once

#include <cstddef>

namespace trainrun {

/// Kernels of LibTorch that neither a training nor a prediction asks for: those for tracing, functionalization, vmap, named,
/// nested and quantized tensors, and for autocast on devices that trainrun does not have. They are a third of the 20,000
/// that LibTorch registers before `main`.
///
/// A program that has `hold_back_rare_kernels` called before the libraries' constructors (an entry in .preinit_array)
/// registers them only once `register_rare_kernels` is called; in any other program they are registered as always.
void hold_back_rare_kernels(int, char**, char**);

/// From here on, every kernel is registered at once: those of libraries that are opened later, LibTorch's for CUDA among
/// them. Called as `main` begins. Returns how many kernels are held back.
size_t end_holding_back_kernels();

/// Registers what was held back: called before code runs that may ask for it, that of a plugin, of TorchScript, of a trace.
/// Calling it again does nothing. Not for two threads at once.
void register_rare_kernels();

}  // namespace trainrun
