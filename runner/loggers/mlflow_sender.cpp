#include "runner/loggers/mlflow_sender.h"

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>

#include "registry/formats/files/file_io.h"
#include "runner/base/text.h"
#include "runner/process/thread_signals.h"

namespace trainrun {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPace(1);  // between two times that something is sent
constexpr std::chrono::seconds kLongestPause(30);
constexpr int kLastAttempts = 5;  // at a busy server, at the end
constexpr std::chrono::milliseconds kLastPause(500);
constexpr uint64_t kMostStateBytes = 1 << 20;

int64_t milliseconds_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// What run.json keeps.
struct MlflowState {
  std::string server;
  MlflowRun run;
  bool is_described = false;  // parameters were sent
  int64_t sent_step = -1;     // the newest step whose line was sent
  int64_t sent_evaluation = -1;

  static MlflowState read(const std::string& path) {
    MlflowState state;
    if (!std::filesystem::exists(path)) return state;
    const json kept = json::parse(read_file(path, kMostStateBytes), nullptr, /*allow_exceptions=*/false);
    if (!kept.is_object()) return state;
    state.server = kept.value("server", "");
    state.run = {kept.value("experiment_id", ""), kept.value("run_id", ""), kept.value("artifact_uri", "")};
    state.is_described = kept.value("is_described", false);
    state.sent_step = kept.value("sent_step", int64_t{-1});
    state.sent_evaluation = kept.value("sent_evaluation", int64_t{-1});
    return state;
  }

  void write(const std::string& path) const {
    const json kept = {{"server", server},
                       {"experiment_id", run.experiment_id},
                       {"run_id", run.run_id},
                       {"artifact_uri", run.artifact_uri},
                       {"is_described", is_described},
                       {"sent_step", sent_step},
                       {"sent_evaluation", sent_evaluation}};
    write_file_atomically(path, kept.dump(2) + "\n");
  }
};

}  // namespace

/// What the thread and the logger share.
struct MlflowSender::Work {
  MlflowPlan plan;
  std::shared_ptr<MlflowOutbox> outbox;
  std::string state_path;

  std::mutex mutex;
  std::condition_variable changed;
  bool has_news = true;          // the run itself is to be made
  std::optional<MlflowEnd> end;  // there is nothing more to come
  bool is_done = false;
  bool has_sent_all = false;
  Clock::time_point last_progress = Clock::now();
  std::vector<Saying> sayings;

  void say(bool is_warning, const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex);
    sayings.push_back({is_warning, text});
  }
  void note_progress() {
    const std::lock_guard<std::mutex> lock(mutex);
    last_progress = Clock::now();
    changed.notify_all();
  }
};

/// The thread's own view: what the server has by now.
class MlflowSender::Session {
 public:
  explicit Session(Work& work)
      : work_(work),
        client_(work.plan.server, [&work] { work.note_progress(); }),
        state_(MlflowState::read(work.state_path)) {}

  /// Sends all that is new, and `end`. Throws what goes wrong; it is then called again.
  void bring_up_to_date(const std::optional<MlflowEnd>& end) {
    if (!is_open_) open();
    if (!state_.is_described) describe();
    if (!std::exchange(has_first_artifacts_, true)) put_all(work_.plan.first_artifacts);
    send_lines();
    if (!end) return;
    put_all(end->artifacts);
    client_.set_status(state_.run.run_id, end->status, milliseconds_now());
  }

  int64_t refused() const { return refused_; }

 private:
  void keep() const { state_.write(work_.state_path); }

  /// The run that an earlier start made, or a new one.
  void open() {
    if (state_.server == client_.server().uri && !state_.run.run_id.empty()) {
      try {
        client_.set_status(state_.run.run_id, "RUNNING", 0);
        goes_on_after_ = {state_.sent_step, state_.sent_evaluation};
        is_open_ = true;
        return work_.say(false, "continues the run " + client_.page_of(state_.run));
      } catch (const MlflowError& error) {
        if (!error.is_refusal()) throw;
        work_.say(true, "cannot continue the run " + state_.run.run_id + " and makes a new one: " + error.what());
      }
    }
    state_ = {};
    state_.server = client_.server().uri;
    const std::string experiment = client_.experiment(work_.plan.experiment);
    state_.run = client_.create_run(experiment, work_.plan.run_name, milliseconds_now(), work_.plan.tags);
    keep();
    is_open_ = true;
    work_.say(false, "the run is " + client_.page_of(state_.run));
  }

  void describe() {
    try {
      client_.log_params(state_.run.run_id, work_.plan.params);
    } catch (const MlflowError& error) {
      if (!error.is_refusal()) throw;
      work_.say(true, std::string("the server refuses the recipe's parameters: ") + error.what());
    }
    state_.is_described = true;
    keep();
  }

  void put_all(const MlflowTexts& artifacts) {
    if (!artifacts.empty() && !MlflowClient::takes_artifacts(state_.run)) {
      if (std::exchange(has_told_of_artifacts_, true)) return;
      return work_.say(true, "sends no artifacts: the server does not pass them on, but keeps them in " +
                                 state_.run.artifact_uri + "; start it with --serve-artifacts");
    }
    for (const auto& [name, path] : artifacts) {
      try {
        if (std::filesystem::exists(path)) client_.put_artifact(state_.run, name, path);
      } catch (const MlflowError& error) {
        if (!error.is_refusal()) throw;
        work_.say(true, std::string("an artifact was refused: ") + error.what());
      }
    }
  }

  void send_lines() {
    for (std::vector<MlflowLine> lines = work_.outbox->take(); !lines.empty(); lines = work_.outbox->take()) {
      std::vector<MlflowMetric> metrics;
      const bool is_again = work_.outbox->was_interrupted();
      for (const MlflowLine& line : lines) {
        if (!is_again && line.step <= (line.is_evaluation ? goes_on_after_.second : goes_on_after_.first)) continue;
        if (metrics.size() + line.figures.size() > MlflowClient::kMostMetrics) send_metrics(metrics);
        for (const auto& [name, value] : line.figures) {
          metrics.push_back({mlflow_key(name), value, line.step, line.time});
          if (metrics.size() == MlflowClient::kMostMetrics) send_metrics(metrics);
        }
        int64_t& newest = line.is_evaluation ? state_.sent_evaluation : state_.sent_step;
        newest = std::max(newest, line.step);
      }
      send_metrics(metrics);
      keep();
      if (is_again) goes_on_after_ = {state_.sent_step, state_.sent_evaluation};
      work_.outbox->sent();
    }
  }

  void send_metrics(std::vector<MlflowMetric>& metrics) {
    if (metrics.empty()) return;
    try {
      client_.log_metrics(state_.run.run_id, metrics);
    } catch (const MlflowError& error) {
      if (!error.is_refusal()) throw;
      if (refused_ == 0) work_.say(true, std::string("the server refuses figures: ") + error.what());
      refused_ += static_cast<int64_t>(metrics.size());
    }
    metrics.clear();
  }

  Work& work_;
  MlflowClient client_;
  MlflowState state_;
  bool is_open_ = false;
  bool has_first_artifacts_ = false;
  bool has_told_of_artifacts_ = false;
  int64_t refused_ = 0;                                // figures
  std::pair<int64_t, int64_t> goes_on_after_{-1, -1};  // steps and evaluations that an earlier start sent
};

MlflowSender::MlflowSender(MlflowPlan plan, std::shared_ptr<MlflowOutbox> outbox, std::string folder)
    : work_(std::make_shared<Work>()) {
  work_->plan = std::move(plan);
  work_->outbox = std::move(outbox);
  work_->state_path = std::move(folder) + "/run.json";
  thread_ = std::thread([work = work_] { run(*work); });
}

MlflowSender::~MlflowSender() {
  if (thread_.joinable()) finish({"KILLED", {}}, std::chrono::milliseconds(0));
}

void MlflowSender::run(Work& work) {
  leave_signals_to_others();
  std::optional<Session> session;
  Clock::time_point next = Clock::now();
  std::chrono::seconds pause(0);  // after a failure
  int last_attempts = 0;
  while (true) {
    std::unique_lock<std::mutex> lock(work.mutex);
    work.changed.wait(lock, [&] { return work.has_news || work.end; });
    work.changed.wait_until(lock, next, [&] { return work.end.has_value(); });
    const std::optional<MlflowEnd> end = work.end;
    work.has_news = false;
    lock.unlock();
    bool is_sent = false;
    bool is_busy = false;
    try {
      if (!session) session.emplace(work);
      session->bring_up_to_date(end);
      if (pause.count() > 0) work.say(false, "the server answers again; what was kept is sent");
      pause = std::chrono::seconds(0);
      is_sent = true;
    } catch (const std::exception& error) {
      if (pause.count() == 0) {
        work.say(true, std::string(error.what()) + "; training continues, and what is not sent is kept in " +
                           work.outbox->unsent_path());
      }
      pause = std::clamp(pause * 2, kPace, kLongestPause);
      const auto* own = dynamic_cast<const MlflowError*>(&error);
      is_busy = own && own->is_answer();
    }
    if (end && is_busy && ++last_attempts < kLastAttempts) {
      std::this_thread::sleep_for(kLastPause);
      continue;
    }
    if (end && session && session->refused() > 0) {
      work.say(true, "the server refused " + grouped(session->refused()) + " figures in all");
    }
    next = Clock::now() + std::max(pause, kPace);
    lock.lock();
    work.has_news = work.has_news || !is_sent;
    if (!end) continue;
    work.has_sent_all = is_sent;
    work.is_done = true;
    work.changed.notify_all();
    return;
  }
}

void MlflowSender::wake() {
  const std::lock_guard<std::mutex> lock(work_->mutex);
  if (std::exchange(work_->has_news, true)) return;
  work_->changed.notify_all();
}

bool MlflowSender::finish(MlflowEnd end, std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return false;
  std::unique_lock<std::mutex> lock(work_->mutex);
  work_->end = std::move(end);
  work_->last_progress = Clock::now();
  work_->changed.notify_all();
  while (!work_->is_done && Clock::now() < work_->last_progress + patience) {
    work_->changed.wait_until(lock, work_->last_progress + patience);
  }
  const bool is_done = work_->is_done;
  lock.unlock();
  if (is_done) {
    thread_.join();
  } else {
    thread_.detach();
  }
  return is_done && work_->has_sent_all;
}

std::vector<MlflowSender::Saying> MlflowSender::take_sayings() {
  const std::lock_guard<std::mutex> lock(work_->mutex);
  return std::exchange(work_->sayings, {});
}

}  // namespace trainrun
