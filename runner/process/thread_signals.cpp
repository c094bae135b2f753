#include "runner/process/thread_signals.h"

#include <pthread.h>

#include <csignal>

namespace trainrun {

void leave_signals_to_others() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace trainrun
