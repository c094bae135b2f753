#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "runner/loggers/appended_file.h"
#include "runner/loggers/csv_log.h"
#include "runner/loggers/earlier_events.h"
#include "runner/loggers/tfevents.h"
#include "tests/runner/logger_support.h"
#include "tests/runner/training_support.h"

namespace trainrun {
namespace {

using namespace test;

/// A door that threads wait at until it is opened.
class Door {
 public:
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

/// What loggers of these tests have been told, from whatever thread; doors that they wait at.
struct Heard {
  std::mutex mutex;
  std::vector<std::string> words;
  Door hangs;    // a hanging logger comes back once it is open
  Door reached;  // it is hanging

  void add(const std::string& word) {
    const std::lock_guard<std::mutex> lock(mutex);
    words.push_back(word);
  }
  std::vector<std::string> all() {
    const std::lock_guard<std::mutex> lock(mutex);
    return words;
  }
};

std::shared_ptr<Heard> heard;

class HearingLogger : public Logger {
 public:
  void on_start(const RunInfo& info) override { own_->add("start " + info.name); }
  void on_progress(int64_t step, double) override { own_->add("progress " + std::to_string(step)); }
  void on_step(const StepRecord& record) override { own_->add("step " + std::to_string(record.step)); }
  void on_evaluation(const EvaluationRecord& record) override {
    own_->add("evaluation " + std::to_string(record.step));
  }
  void on_checkpoint(const CheckpointRecord& record) override {
    own_->add("checkpoint " + std::to_string(record.step));
  }
  void on_end(const EndRecord& record) override { own_->add("end " + std::to_string(record.step)); }

 protected:
  std::shared_ptr<Heard> own_ = heard;
};

class FailingLogger : public HearingLogger {
 public:
  void on_step(const StepRecord& record) override {
    HearingLogger::on_step(record);
    if (record.step == 3) throw Error("the third step is too much");
  }
};

class HangingLogger : public HearingLogger {
 public:
  void on_step(const StepRecord& record) override {
    if (record.step == 2) {
      own_->reached.open();
      own_->hangs.wait();
    }
    HearingLogger::on_step(record);
  }
};

/// On a disk that has no room left.
class FullDiskLogger : public Logger {
 public:
  FullDiskLogger() : file_("/dev/full") {}
  void on_step(const StepRecord& record) override { file_.append(std::to_string(record.step) + "\n"); }

 private:
  AppendedFile file_;
};

template <class L>
struct LoggerComponent {
  static void describe(Fields<LoggerComponent>&) {}
  std::unique_ptr<Logger> build(const LoggerInputs&) const { return std::make_unique<L>(); }
};

void add_test_loggers(Catalog& catalog) {
  catalog.loggers.add<LoggerComponent<HearingLogger>>("Hearing", "hears everything");
  catalog.loggers.add<LoggerComponent<FailingLogger>>("Failing", "throws at its third step");
  catalog.loggers.add<LoggerComponent<HangingLogger>>("Hanging", "hangs at its second step");
  catalog.loggers.add<LoggerComponent<FullDiskLogger>>("FullDisk", "has no room");
}

/// Trains five steps with a logger of these tests, and what a run has besides; its log.
std::string train_with(const std::string& folder, Script& script, const std::string& logger) {
  Catalog catalog = catalog_with(add_test_loggers);
  CHECK(train_in(folder, script,
                 {"training={max_steps: 5}", "evaluation.every=null",
                  "logging={every_steps: 1, report_to: [jsonl, " + logger + ", Watcher]}"},
                 catalog) == 0);
  return content_of(folder + "/log.txt");
}

}  // namespace

TEST_CASE("a logger is told everything in its order, by a thread of its own") {
  heard = std::make_shared<Heard>();
  Loggers loggers;
  loggers.add(named("Hearing"), std::make_unique<HearingLogger>());
  RunInfo info;
  info.name = "line";
  loggers.on_start(info);
  for (int64_t step = 1; step <= 3; ++step) {
    loggers.on_progress(step, 0.5);
    loggers.on_step(at_step(step));
  }
  loggers.on_checkpoint({3, "x"});
  loggers.on_evaluation({3, 0, 1, {}});
  loggers.on_end({3, 1, "", {}});
  CHECK(heard->all() == std::vector<std::string>{"start line", "progress 1", "step 1", "progress 2", "step 2",
                                                 "progress 3", "step 3", "checkpoint 3", "evaluation 3", "end 3"});
}

TEST_CASE("of progress that a logger has no time for, the newest alone waits") {
  EventQueue queue(2);
  for (int64_t step = 1; step <= 1000; ++step) CHECK(queue.put(ProgressRecord{step, 0}));
  CHECK(queue.size() == 1);
  CHECK(queue.put(at_step(1000)));
  CHECK_FALSE(queue.put(at_step(1001)));
  CHECK(queue.put(ProgressRecord{1002, 0}));  // no news is lost with it
  CHECK(queue.put(EndRecord{1002, 1, "", {}}));
  CHECK(std::get<ProgressRecord>(*queue.take()).step == 1000);
  CHECK(std::get<StepRecord>(*queue.take()).step == 1000);
  CHECK(std::get<EndRecord>(*queue.take()).step == 1002);
  queue.close();
  CHECK_FALSE(queue.take());
}

TEST_CASE("a logger that throws is named once, with its place, and left out; the job goes on") {
  const TemporaryFolder folder;
  heard = std::make_shared<Heard>();
  Script script;
  const std::string log = train_with(folder / "run", script, "Failing");
  CHECK(script.lines.size() == 5);
  const std::string warning =
      ": logging.report_to[1]: Failing failed and receives nothing from now on; training continues: the third step is "
      "too "
      "much\n";
  CAPTURE(log);
  CHECK(count_of(log, "Failing") == 1);
  CHECK(count_of(log, warning) == 1);
  CHECK(count_of(log, "warning: command line:") == 1);
  const auto words = heard->all();
  CHECK(words.back() == "step 3");
}

TEST_CASE("a logger that can write nothing says so once, and at the end how many lines are missing") {
  const TemporaryFolder folder;
  const Log log;
  std::filesystem::create_symlink("/dev/full", folder / "metrics.jsonl");
  Catalog catalog;
  add_loggers(catalog.loggers);
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  const auto jsonl = Codec<Component<LoggerKind>>::read(Value::scalar("jsonl", false, {}), reader);
  LoggerInputs inputs;
  inputs.output_dir = folder.path();
  Loggers loggers;
  loggers.add(*jsonl, inputs);
  loggers.on_step(at_step(1));
  loggers.on_step(at_step(2));
  loggers.on_end({2, 1, "", {}});
  CHECK(count_of(log.text(),
                 "jsonl cannot write; until it can, its lines are dropped and counted, and training continues: " +
                     folder.path() + "/metrics.jsonl: cannot write: No space left on device\n") == 1);
  CHECK(count_of(log.text(), "jsonl could not write to the end; 2 lines are missing\n") == 1);
  CHECK(count_of(log.text(), "jsonl") == 3);  // two names, and a path
}

TEST_CASE("a full disk of a logger neither stops nor slows a run") {
  const TemporaryFolder folder;
  Script script;
  const std::string log = train_with(folder / "run", script, "FullDisk");
  CHECK(script.lines.size() == 5);
  CHECK(count_of(log,
                 "FullDisk cannot write; until it can, its lines are dropped and counted, and training continues: "
                 "/dev/full: cannot write: No space left on device\n") == 1);
  CHECK(count_of(log, "FullDisk could not write to the end; 5 lines are missing\n") == 1);
}

TEST_CASE("a run goes on while a logger hangs, which is told the rest once it comes back") {
  const TemporaryFolder folder;
  heard = std::make_shared<Heard>();
  Script script;
  std::vector<std::string> when_all_was_trained;
  script.at_checkpoint = [&](const std::string&) {  // after the last step; the logger hangs at its second
    heard->reached.wait();
    when_all_was_trained = heard->all();
    CHECK(script.lines.size() == 5);
    heard->hangs.open();
  };
  const std::string log = train_with(folder / "run", script, "Hanging");
  REQUIRE(script.checkpoints == std::vector<int64_t>{5});
  CHECK(std::count(when_all_was_trained.begin(), when_all_was_trained.end(), "step 1") == 1);
  CHECK(std::count(when_all_was_trained.begin(), when_all_was_trained.end(), "step 2") == 0);
  const auto words = heard->all();
  for (int64_t step = 1; step <= 5; ++step)
    CHECK(std::count(words.begin(), words.end(), "step " + std::to_string(step)) == 1);
  CHECK(words.back() == "end 5");
  CHECK(count_of(log, "warning") == 0);
}

TEST_CASE("a logger that comes to no end is left behind after the run's end, which is told") {
  heard = std::make_shared<Heard>();
  const std::shared_ptr<Heard> own = heard;
  const Log log;
  {
    Loggers loggers(std::chrono::milliseconds(1));
    loggers.add(named("Hanging"), std::make_unique<HangingLogger>());
    for (int64_t step = 1; step <= 4; ++step) loggers.on_step(at_step(step));
    own->reached.wait();
    loggers.on_end({4, 1, "", {}});
  }
  CHECK(count_of(log.text(),
                 "r.yaml:7:3: logging.report_to[1]: Hanging has not finished 0.0 s after the end of the run; "
                 "it is abandoned, with 3 lines that it has not received\n") == 1);
  own->hangs.open();
}

TEST_CASE("what a logger that is slower than training has no room for is left out, which is told once") {
  heard = std::make_shared<Heard>();
  const Log log;
  QueuedLogger logger(named("Hanging"), std::make_unique<HangingLogger>(), 2);
  logger.tell(at_step(2));
  heard->reached.wait();
  for (int64_t step = 3; step <= 6; ++step) logger.tell(at_step(step));  // there is room for two of them
  heard->hangs.open();
  logger.tell(EndRecord{6, 1, "", {}});
  logger.finish(ToldLogger::Clock::now(), std::chrono::hours(1));
  CHECK(heard->all() == std::vector<std::string>{"step 2", "step 3", "step 4", "end 6"});
  CHECK(count_of(log.text(),
                 "Hanging is slower than training: 2 lines wait for it; new lines are dropped until it has "
                 "caught up\n") == 1);
  CHECK(count_of(log.text(), "Hanging was slower than training: 2 lines were left out\n") == 1);
}

TEST_CASE("every parameter group's learning rate is among a step's figures, where there are several") {
  const TemporaryFolder folder;
  Script script;
  CHECK(train_in(folder / "run", script,
                 {"training={max_steps: 1}", "evaluation.every=null",
                  "optimizer={type: SGD, lr: 0.1, param_groups: [{match: bias, lr: 0}, {match: '^2', lr: 0.3}]}"}) ==
        0);
  const Figures figures = script.lines.at(0).figures();
  std::map<std::string, double> rates;
  for (const auto& [name, value] : figures) {
    if (name.starts_with("train/lr")) rates[name] = value;
  }
  CHECK(rates ==
        std::map<std::string, double>{{"train/lr", 0.3}, {"train/lr/0", 0}, {"train/lr/1", 0.3}, {"train/lr/2", 0.1}});
  CHECK(content_of(folder / "run/metrics.jsonl").find(R"("train/lr": 0.3, "train/lr/0": 0, "train/lr/1": 0.3)") !=
        std::string::npos);
}

namespace {

std::unique_ptr<Logger> csv_in(const std::string& folder) {
  Catalog catalog;
  add_loggers(catalog.loggers);
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  LoggerInputs inputs;
  inputs.output_dir = folder;
  return Codec<Component<LoggerKind>>::read(Value::scalar("csv", false, {}), reader)->build(inputs);
}

EvaluationRecord evaluation_at(int64_t step, const Figures& metrics) { return {step, 0, 1.5, metrics}; }

}  // namespace

TEST_CASE("CSV has a row for each record, and figures that come later become columns of all") {
  const TemporaryFolder folder;
  const auto logger = csv_in(folder.path());
  logger->on_start({});
  logger->on_evaluation(evaluation_at(1, {{"eval/loss", 0.5}}));
  logger->on_evaluation(evaluation_at(2, {{"eval/loss", std::nan("")}, {"eval/a,b", 1e-7}}));
  logger->on_evaluation(evaluation_at(3, {{"eval/a,b", -std::numeric_limits<double>::infinity()}}));
  CHECK(content_of(folder / "metrics.csv") ==
        "step,epoch,time,split,eval/loss,\"eval/a,b\"\n"
        "1,0,1.5,eval,0.5,\n"
        "2,0,1.5,eval,nan,1e-07\n"
        "3,0,1.5,eval,,-inf\n");
}

TEST_CASE("a resumed run's CSV loses the rows that come again, and one that was cut off") {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.csv";
  const std::string head = "step,epoch,time,split,train/loss,eval/loss\n10,0,1,train,0.5,\n";
  RunInfo info;
  info.start_step = 20;
  const auto after = [&](const std::string& rest) {
    write_content(path, head + rest);
    csv_in(folder.path())->on_start(info);
    return content_of(path).substr(head.size());
  };
  CHECK(after("20,0,2,train,0.4,\n20,0,2,eval,,0.3\n30,0,3,train,0.2,\n") == "20,0,2,train,0.4,\n20,0,2,eval,,0.3\n");
  CHECK(after("20,0,2,train,0.4,\n20,0,2,eval,,0.3") == "20,0,2,train,0.4,\n");
  CHECK(after("20,0,2,train,0.4,\n20,0") == "20,0,2,train,0.4,\n");
  info.evaluation_due = true;
  CHECK(after("20,0,2,train,0.4,\n20,0,2,eval,,0.3\n") == "20,0,2,train,0.4,\n");
  const auto logger = csv_in(folder.path());
  logger->on_start(info);
  logger->on_evaluation(evaluation_at(20, {{"eval/loss", 0.25}}));
  CHECK(content_of(path) == head + "20,0,2,train,0.4,\n20,0,1.5,eval,,0.25\n");
}

TEST_CASE("a metrics.csv of somebody else is not written to") {
  const TemporaryFolder folder;
  write_content(folder / "metrics.csv", "a,b\n1,2\n");
  CHECK_THROWS_WITH_AS(csv_in(folder.path())->on_start({}), doctest::Contains("move it away"), Error);
  CHECK(content_of(folder / "metrics.csv") == "a,b\n1,2\n");
}

TEST_CASE("CRC-32C is RFC 3720's") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43);
}

TEST_CASE("what event files show of a step ends at a record that is not whole, and a restart hides what came before") {
  const TemporaryFolder folder;
  const auto loss = [](int64_t step, double value) { return scalars_event(1, step, {{"train/loss", value}}); };
  const std::string text = text_event(1, 40, "recipe/text_summary", "text");
  std::string first = framed_record(version_event(1));
  for (const std::string& event : {loss(39, 1), loss(40, 2), text, loss(41, 3)}) first += framed_record(event);
  write_content(folder / "a", first);
  const auto shown = [&](const std::vector<std::string>& files) {
    std::vector<std::string> paths;
    for (const std::string& file : files) paths.push_back(folder / file);
    return shown_events(paths, 40);
  };
  CHECK(shown({}).empty());
  CHECK(shown({"a"}) == std::vector<std::string>{loss(40, 2), text});
  write_content(folder / "later", framed_record(restart_event(2, 41)) + framed_record(loss(40, 4)));
  CHECK(shown({"a", "later"}) == std::vector<std::string>{loss(40, 2), text, loss(40, 4)});
  std::string torn = framed_record(restart_event(2, 40)) + framed_record(loss(40, 5));
  const size_t whole = torn.size();
  torn += framed_record(loss(40, 6));
  write_content(folder / "b", torn);
  CHECK(shown({"a", "b"}) == std::vector<std::string>{loss(40, 5), loss(40, 6)});
  for (const size_t end : {whole, whole + 3, whole + 14, torn.size() - 1}) {
    write_content(folder / "b", torn.substr(0, end));
    CHECK(shown({"a", "b"}) == std::vector<std::string>{loss(40, 5)});
  }
  torn.back() = static_cast<char>(torn.back() ^ 1);
  write_content(folder / "b", torn);
  CHECK(shown({"a", "b"}) == std::vector<std::string>{loss(40, 5)});
  CHECK(read_event(text).tag == "recipe/text_summary");
  CHECK(read_event(restart_event(2, 41)).is_restart);
  CHECK_THROWS_AS(shown({"none"}), DataError);
  write_content(folder / "foreign", framed_record("\x0F"));
  CHECK_THROWS_AS(shown({"foreign"}), DataError);
}

}  // namespace trainrun
