#include "runner/train/start_notes.h"

#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>

#include "runner/device/threads.h"
#include "runner/model/recipe_notes.h"

namespace trainrun {

void log_start_notes(const LoadedRecipe& loaded) {
  for (const PublishedName& name : loaded.names) spdlog::info("{}: {}", name.path, name.source.text);
  for (const Problem& note : recipe_notes(loaded)) spdlog::warn(note.to_string());
  const Waiting waiting = thread_waiting();
  const std::string hint = waiting_hint(waiting.is_busy, at::get_num_threads(), num_runnable(), usable_cpus());
  if (!hint.empty()) spdlog::warn(hint);
  spdlog::debug("threads within an operation: {}, of {} usable CPUs; idle threads wait {}", at::get_num_threads(),
                usable_cpus(), waiting.text);
}

}  // namespace trainrun
