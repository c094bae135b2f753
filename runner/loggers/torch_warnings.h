#pragma once

namespace trainrun {

/// From now on LibTorch's warnings on this thread are warnings of trainrun: lines of the log, or of standard error while
/// there is none. As in Python, each place of LibTorch's source warns once.
void show_torch_warnings();

}  // namespace trainrun
