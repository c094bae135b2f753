#pragma once

namespace trainrun {

/// Blocks all signals on the calling thread: they then come to the training thread, and interrupt nothing here.
void leave_signals_to_others();

}  // namespace trainrun
