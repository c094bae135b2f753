#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runner/loggers/mlflow_client.h"
#include "runner/loggers/mlflow_outbox.h"

namespace trainrun {

/// What a run tells MLflow besides figures.
struct MlflowPlan {
  MlflowServer server;
  std::string experiment;
  std::string run_name;
  MlflowTexts params;
  MlflowTexts tags;
  MlflowTexts first_artifacts;  // name and path
};

/// How a run ends.
struct MlflowEnd {
  std::string status;     // "FINISHED", "FAILED", "KILLED"
  MlflowTexts artifacts;  // name and path
};

/// Sends what the outbox holds, on a thread of its own: when there is something new, at most once a second, and after a
/// failure again and again, at growing intervals. The run's number at the server is kept in `run.json`, so that a resumed
/// run is the same one; what the server has received before is not sent again.
class MlflowSender {
 public:
  /// Something that the training thread logs.
  struct Saying {
    bool is_warning = false;
    std::string text;
  };

  /// `folder`: of run.json.
  MlflowSender(MlflowPlan plan, std::shared_ptr<MlflowOutbox> outbox, std::string folder);
  ~MlflowSender();
  MlflowSender(const MlflowSender&) = delete;
  MlflowSender& operator=(const MlflowSender&) = delete;

  /// There is something new in the outbox.
  void wake();
  /// Sends the rest and the end. Waits until that is done, but no longer than `patience` after the server last took
  /// something. Returns whether it has received everything.
  bool finish(MlflowEnd end, std::chrono::milliseconds patience);
  std::vector<Saying> take_sayings();

 private:
  struct Work;
  class Session;
  static void run(Work& work);

  std::shared_ptr<Work> work_;  // the thread's, too: it may outlive this object
  std::thread thread_;
};

}  // namespace trainrun
