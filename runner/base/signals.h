#pragma once

#include <cstdint>

namespace trainrun {

/// While one lives (one at a time, made before the recipe is read), signals do what follows.
///
/// SIGINT and SIGTERM end the program at once until training begins: until then there is nothing to save. From then on
/// the first is noted, and training stops at its next batch and saves. What comes within a second after it is ignored,
/// since GNU timeout sends two; a later one ends the program at once and says which steps are not saved.
/// SIGUSR1 and SIGHUP (unless it is ignored already, as nohup does) are noted: training saves and goes on.
/// SIGPIPE is ignored: a job does not end because nobody listens.
///
/// The exit code of a program that ends at once is 128 + the signal's number.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// From now on signals to stop are noted. Training stands at `step`, which is saved.
  static void begin_training(int64_t step);
  /// For what is said where the program ends at once: finished optimizer steps, and those of the newest checkpoint.
  static void note_step(int64_t step);
  static void note_saved(int64_t step);

  /// The signal to stop that came, or 0.
  static int received();
  /// Asks to save and to go on, as the signal `number` would; SIGPIPE: standard output was closed; kControl: somebody
  /// asked by the run's socket.
  static void request_save(int number);
  static constexpr int kControl = 1000;
  /// Asks to stop, as SIGTERM would.
  static void request_stop();
  /// What asked to save since this was last called, or 0.
  static int take_save_request();

  /// Whether a signal to stop is taken for a repetition of the first, so many nanoseconds after it.
  static constexpr bool is_repetition(int64_t nanoseconds) { return nanoseconds < 1'000'000'000; }
};

/// "SIGTERM"; "a signal" for those that the program does not handle.
const char* signal_name(int number);

}  // namespace trainrun
