#include "runner/run/checkpoint_writer.h"

#include <utility>

#include "runner/process/thread_signals.h"

namespace trainrun {

CheckpointWriter::CheckpointWriter(CheckpointStore store, When when, Events events)
    : store_(std::move(store)), when_(when), events_(std::move(events)) {}

CheckpointWriter::~CheckpointWriter() {
  if (!thread_.joinable()) return;
  {
    const Lock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::save(const std::string& name, CheckpointContent content, bool is_best) {
  add({false, name, std::move(content), is_best});
}

void CheckpointWriter::amend(const std::string& name, nlohmann::json state, bool is_best) {
  add({true, name, {{}, {}, std::move(state)}, is_best});
}

void CheckpointWriter::heed() {
  Lock lock(mutex_);
  tell(lock);
  if (error_) try_again_or_throw(lock);
}

void CheckpointWriter::finish() {
  wait_until([this] { return tasks_.empty(); });
}

void CheckpointWriter::finish_writing() {
  wait_until([this] { return tasks_.empty() || tasks_.back().is_written; });
}

template <class Condition>
void CheckpointWriter::wait_until(const Condition& condition) {
  Lock lock(mutex_);
  while (true) {
    if (when_ == When::kAtOnce) {
      while (!tasks_.empty() && !error_) write_first(lock);
    } else {
      changed_.wait(lock, [&] { return condition() || error_; });
    }
    tell(lock);
    if (!error_) return;
    try_again_or_throw(lock);
  }
}

CheckpointStore& CheckpointWriter::store() {
  finish();
  return store_;
}

void CheckpointWriter::add(Task task) {
  {
    const Lock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  if (when_ == When::kAtOnce) return finish();
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

void CheckpointWriter::work() {
  leave_signals_to_others();
  Lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_ending_ || (!tasks_.empty() && !error_); });
    if (tasks_.empty() || error_) return;
    write_first(lock);
    changed_.notify_all();
  }
}

void CheckpointWriter::write_first(Lock& lock) {
  Task& task = tasks_.front();  // stays where it is while others are added
  std::exception_ptr error;
  const auto unlocked = [&](const auto& work) {
    lock.unlock();
    try {
      work();
    } catch (...) {
      error = std::current_exception();  // the training thread throws it
    }
    lock.lock();
  };
  if (task.amends) {
    unlocked([&] { store_.amend(task.name, task.content.state, task.is_best); });
  } else if (!task.is_written) {
    std::string path;
    unlocked([&] {
      path = store_.add(task.name, task.content, task.is_best);
      task.content.model.clear();  // their memory goes here, and not under the lock
      task.content.optimizer.clear();
    });
    task.is_written = !error;
    if (task.is_written) written_.push_back({task.content.state.at("step").get<int64_t>(), path});
    changed_.notify_all();
  }
  if (task.is_written) unlocked([&] { store_.apply_retention(task.name); });
  error_ = error;
  if (!error) tasks_.pop_front();
}

void CheckpointWriter::tell(Lock& lock) {
  const std::vector<Written> written = std::exchange(written_, {});
  lock.unlock();
  for (const Written& one : written) events_.on_written(one.step, one.path);
  lock.lock();
}

void CheckpointWriter::try_again_or_throw(Lock& lock) {
  const std::exception_ptr error = std::exchange(error_, nullptr);
  std::deque<Task> tasks = std::exchange(tasks_, {});
  lock.unlock();
  try {
    std::rethrow_exception(error);
  } catch (const FileError&) {
    if (tasks.front().amends || !events_.restore_folder()) throw;
    if (tasks.front().is_written) tasks.pop_front();  // it went with the folder, and so did older ones
  }
  lock.lock();
  tasks_ = std::move(tasks);
  changed_.notify_all();
}

}  // namespace trainrun
