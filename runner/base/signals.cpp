#include "runner/base/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

namespace trainrun {
namespace {

// What handlers read and write: they run on whatever thread a signal comes to, LibTorch's too.
std::atomic<bool> is_training = false;
std::atomic<int> stop_signal = 0;
std::atomic<int64_t> first_nanoseconds = 0;  // when it came
std::atomic<int> save_signal = 0;
std::atomic<int64_t> finished_step = 0;
std::atomic<int64_t> saved_step = 0;
static_assert(std::atomic<int64_t>::is_always_lock_free);

bool hangup_was_ignored = false;

int64_t nanoseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Text put together by what a signal handler may call.
class Line {
 public:
  Line& operator<<(const char* text) {
    for (; *text && size_ < text_.size(); ++text) text_[size_++] = *text;
    return *this;
  }
  Line& operator<<(int64_t number) {
    std::array<char, 24> digits{};
    size_t first = digits.size() - 1;
    do {
      digits[--first] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return *this << digits.data() + first;
  }
  void print() const { static_cast<void>(!::write(STDERR_FILENO, text_.data(), size_)); }

 private:
  std::array<char, 200> text_{};
  size_t size_ = 0;
};

[[noreturn]] void end_at_once(int number) {
  Line line;
  line << "trainrun: stopped at once by ";
  if (!is_training) {
    line << signal_name(number) << ", before the first step; there was nothing to save\n";
  } else {
    line << "a second signal, " << signal_name(number) << "; ";
    const int64_t saved = saved_step;
    const int64_t finished = finished_step;
    if (finished == saved) {
      line << "every finished step is saved\n";
    } else if (finished == saved + 1) {
      line << "step " << finished << " is not saved\n";
    } else {
      line << "steps " << saved + 1 << " to " << finished << " are not saved\n";
    }
  }
  line.print();
  ::_exit(128 + number);
}

void on_stop(int number) {
  const int saved_errno = errno;
  if (!is_training) end_at_once(number);
  const int64_t now = nanoseconds_now();
  int none = 0;
  if (stop_signal.compare_exchange_strong(none, number)) {
    first_nanoseconds = now;
  } else if (!StopSignals::is_repetition(now - first_nanoseconds)) {
    end_at_once(number);
  }
  errno = saved_errno;
}

void on_save(int number) { save_signal = number; }

/// System calls that the signal interrupts go on.
void handle(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, &action, nullptr);
}

bool is_ignored(int number) {
  struct sigaction action = {};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

const char* signal_name(int number) {
  switch (number) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    case SIGUSR1:
      return "SIGUSR1";
    case StopSignals::kControl:
      return "trainrun ctl";
    default:
      return "a signal";
  }
}

StopSignals::StopSignals() {
  is_training = false;
  stop_signal = 0;
  save_signal = 0;
  handle(SIGINT, on_stop);
  handle(SIGTERM, on_stop);
  handle(SIGUSR1, on_save);
  hangup_was_ignored = is_ignored(SIGHUP);
  if (!hangup_was_ignored) handle(SIGHUP, on_save);
  handle(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) handle(number, SIG_DFL);
  if (!hangup_was_ignored) handle(SIGHUP, SIG_DFL);
}

void StopSignals::begin_training(int64_t step) {
  finished_step = step;
  saved_step = step;
  is_training = true;
}

void StopSignals::note_step(int64_t step) { finished_step = step; }

void StopSignals::note_saved(int64_t step) { saved_step = step; }

int StopSignals::received() { return stop_signal; }

void StopSignals::request_save(int number) { save_signal = number; }

void StopSignals::request_stop() {
  const int64_t now = nanoseconds_now();
  int none = 0;
  if (stop_signal.compare_exchange_strong(none, SIGTERM)) first_nanoseconds = now;
}

int StopSignals::take_save_request() { return save_signal.exchange(0); }

}  // namespace trainrun
