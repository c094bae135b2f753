#include "runner/run/checkpoint_store.h"

#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "runner/run/checkpoint_state.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::contains;
using test::message_of;
using test::Strings;

/// A checkpoint all of whose content tells its step.
CheckpointContent stored_at(int64_t step) {
  const auto value = static_cast<float>(step);
  return {{{"fc.weight", at::full({3, 2}, value)}, {"fc.bias", at::full({3}, value).to(at::kBFloat16)}},
          {{"fc.weight.exp_avg", at::full({3, 2}, -value)}, {"fc.weight.step", at::scalar_tensor(value)}},
          {{"step", step}, {"epoch", step / 10}, {"scheduler", {{"best", std::numeric_limits<double>::infinity()}}}}};
}

bool holds(const CheckpointContent& content, int64_t step) {
  const CheckpointContent expected = stored_at(step);
  const auto same = [](const NamedTensors& a, const NamedTensors& b) {
    bool equal = a.size() == b.size();
    for (const auto& [name, tensor] : a) {
      for (const auto& [other_name, other] : b) {
        if (name == other_name) equal = equal && tensor.equal(other) && tensor.scalar_type() == other.scalar_type();
      }
    }
    return equal;
  };
  return same(content.model, expected.model) && same(content.optimizer, expected.optimizer) &&
         content.state == expected.state;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void must_not_warn(const std::string& message) { FAIL(message); }

}  // namespace

TEST_CASE("a checkpoint comes back as it was saved, infinities and NaN included") {
  const TemporaryFolder folder;
  CheckpointStore store(folder / "run/checkpoints", {});
  CheckpointContent content = stored_at(30);
  content.state["metrics"] = {1e-300, 0.1, -0.0, -std::numeric_limits<double>::infinity(), nullptr, "é", true};
  const std::string path = store.save("epoch-0003", content, false);
  CHECK(path == folder / "run/checkpoints/epoch-0003");
  CHECK(names_in(path) == Strings{"model.safetensors", "optimizer.safetensors", "state.json"});
  const CheckpointContent loaded = CheckpointStore::load(path);
  CHECK(loaded.state == content.state);
  content.state.erase("metrics");
  CHECK(holds({loaded.model, loaded.optimizer, content.state}, 30));

  content.state["loss"] = std::nan("");
  store.save("epoch-0003", content, false);
  CHECK(std::isnan(CheckpointStore::load(path).state["loss"].get<double>()));
}

TEST_CASE("state.json names format, files, sizes and digests, and is plain JSON") {
  const TemporaryFolder folder;
  const std::string path = CheckpointStore(folder.path(), {}).save("step-00000030", stored_at(30), true);
  const json state = json::parse(content_of(path + "/state.json"));
  CHECK(state["format"] == 1);
  CHECK(state["step"] == 30);
  CHECK(state["is_best"] == true);
  CHECK(state["digest"].get<std::string>().size() == 64);
  CHECK(state["scheduler"]["best"] == json{{"$float", "inf"}});
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const FileDigest digest = digest_file(path + "/" + file);
    CHECK(state["files"][file] == json{{"sha256", digest.sha256}, {"bytes", digest.bytes}});
  }
}

TEST_CASE("the same content gives the same bytes") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {});
  store.save("step-1", stored_at(1), false);
  store.save("step-2", stored_at(1), false);
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/state.json"}) {
    CHECK(content_of(folder / "step-1" + file) == content_of(folder / "step-2" + file));
  }
}

TEST_CASE("a change of any byte of a checkpoint is noticed") {
  const TemporaryFolder folder;
  const std::string path = CheckpointStore(folder.path(), {}).save("step-1", stored_at(7), false);
  for (const std::string file : {"/model.safetensors", "/optimizer.safetensors", "/state.json"}) {
    const std::string whole = content_of(path + file);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
      write_content(path + file, changed);
      CAPTURE(file);
      CAPTURE(i);
      CHECK_THROWS_AS(CheckpointStore::load(path), CheckpointError);
      CHECK_THROWS_AS(CheckpointStore::verify(path), CheckpointError);
    }
    for (const std::string& other : {whole.substr(0, whole.size() - 1), whole + " ", std::string()}) {
      write_content(path + file, other);
      CHECK_THROWS_AS(CheckpointStore::load(path), CheckpointError);
    }
    write_content(path + file, whole);
    CHECK(holds(CheckpointStore::load(path), 7));
  }
}

TEST_CASE("a damaged or missing file is an error that names it and both digests") {
  const TemporaryFolder folder;
  const std::string path = CheckpointStore(folder.path(), {}).save("step-1", stored_at(7), false);
  const std::string file = path + "/model.safetensors";
  const FileDigest expected = digest_file(file);
  std::string content = content_of(file);
  content.back() = static_cast<char>(content.back() ^ 1);
  write_content(file, content);
  const std::string message = file + ": is damaged: expected SHA-256 " + expected.sha256 + " (" +
                              std::to_string(expected.bytes) + " bytes), found " + sha256(content);
  CHECK(contains(message_of<Error>([&] { CheckpointStore::load(path); }), message));
  CHECK(contains(message_of<Error>([&] { CheckpointStore::verify(path); }), message));
  fs::remove(file);
  CHECK(message_of<Error>([&] { CheckpointStore::load(path); }) == file + ": cannot open: No such file or directory");
  CHECK(contains(message_of<Error>([&] { CheckpointStore::load(folder / "none"); }),
                 "none: is not a checkpoint: No such file"));
  CHECK(contains(message_of<Error>([&] { CheckpointStore::load(folder.path()); }), "is not a whole checkpoint: "));
}

TEST_CASE("a state that is not ours, or of a newer format, is an error") {
  CHECK_THROWS_AS(parse_checkpoint_state(""), DataError);
  CHECK_THROWS_AS(parse_checkpoint_state("{}"), DataError);
  const auto signed_text = [](const std::string& lines) {
    return "{\n  \"digest\": \"" + sha256("{\n" + lines) + "\",\n" + lines;
  };
  CHECK(contains(message_of<Error>([&] { parse_checkpoint_state(signed_text(R"("format": 2})")); }),
                 "use a newer trainrun"));
  CHECK(contains(message_of<Error>([&] { parse_checkpoint_state(signed_text(R"("format": 1})")); }), "is_best"));
  const std::string deep =
      R"("format": 1, "is_best": false, "files": {}, "step": 1, "a": )" + std::string(1000000, '[');
  CHECK(
      contains(message_of<Error>([&] { parse_checkpoint_state(signed_text(deep + std::string(1000000, ']') + "}")); }),
               "nested too deeply"));
  CHECK(contains(message_of<Error>([&] { parse_checkpoint_state(signed_text("nonsense")); }),
                 "not the state of a checkpoint"));

  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {});
  const auto refusal = [&](const json& state) {
    return message_of<Error>([&] { store.save("step-1", {{}, {}, state}, false); });
  };
  CHECK(contains(refusal({{"epoch", 1}}), "integer 'step'"));
  CHECK(contains(refusal({{"step", 1.5}}), "integer 'step'"));
  CHECK(contains(refusal({{"step", 1}, {"files", 1}}), "key 'files'"));
  CHECK(contains(refusal({{"step", 1}, {"x", "\xff"}}), "cannot be written"));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("names that are not a checkpoint's are refused") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {});
  for (const char* name :
       {"", "latest", "best", "a/b", "..", ".hidden", "my-copy", "epoch-", "epoch-1a", "my-epoch-0001"}) {
    CHECK(
        contains(message_of<Error>([&] { store.save(name, stored_at(1), false); }), "is not a name for a checkpoint"));
  }
}

TEST_CASE("latest and best are relative links to checkpoints, and can be loaded") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {});
  store.save("epoch-0001", stored_at(10), true);
  store.save("epoch-0002", stored_at(20), false);
  CHECK(fs::read_symlink(folder / "latest") == "epoch-0002");
  CHECK(fs::read_symlink(folder / "best") == "epoch-0001");
  CHECK(holds(CheckpointStore::load(folder / "best"), 10));
  store.amend("epoch-0002", stored_at(20).state, true);
  CHECK(fs::read_symlink(folder / "best") == "epoch-0002");
  CHECK_THROWS_AS(store.amend("epoch-0003", stored_at(30).state, true), CheckpointError);
}

TEST_CASE("the newest so many checkpoints are kept, by step") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {.keep_last = 2, .keep_best = false});
  for (const int64_t step : {100, 20, 9, 300}) store.save("step-" + std::to_string(step), stored_at(step), false);
  CHECK(store.list() == Strings{"step-100", "step-300"});
  CHECK(names_in(folder.path()) == Strings{"latest", "step-100", "step-300"});

  CheckpointStore all(folder.path(), {.keep_last = 0, .keep_best = false});
  for (int64_t step = 400; step < 410; ++step) all.save("step-" + std::to_string(step), stored_at(step), false);
  CHECK(all.list().size() == 12);
}

TEST_CASE("the checkpoint just saved stays, though abandoned later ones lie beside it") {
  const TemporaryFolder folder;
  CheckpointStore(folder.path(), {}).save("step-900", stored_at(900), false);
  CheckpointStore store(folder.path(), {.keep_last = 1, .keep_best = false});
  store.save("step-100", stored_at(100), false);
  CHECK(store.list() == Strings{"step-100", "step-900"});
}

TEST_CASE("the best checkpoint is kept however old, until another is better") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {.keep_last = 2, .keep_best = true});
  for (const int64_t step : {1, 2, 3, 4}) store.save("step-" + std::to_string(step), stored_at(step), step == 1);
  CHECK(store.list() == Strings{"step-1", "step-3", "step-4"});
  store.amend("step-4", stored_at(4).state, true);
  CHECK(store.list() == Strings{"step-3", "step-4"});

  CheckpointStore careless(folder.path(), {.keep_last = 1, .keep_best = false});
  careless.save("step-5", stored_at(5), false);
  CHECK(names_in(folder.path()) == Strings{"latest", "step-5"});  // no link that leads nowhere
}

TEST_CASE("the newest checkpoint whose digests hold is found, and damaged ones are reported") {
  const TemporaryFolder folder;
  CheckpointStore store(folder / "checkpoints", {});
  CHECK(!store.newest(must_not_warn));
  for (const int64_t step : {10, 20, 30, 40}) store.save("step-" + std::to_string(step), stored_at(step), false);
  CHECK(store.newest(must_not_warn) == folder / "checkpoints/step-40");

  std::string model = content_of(folder / "checkpoints/step-40/model.safetensors");
  model[model.size() - 3] = static_cast<char>(model[model.size() - 3] ^ 4);
  write_content(folder / "checkpoints/step-40/model.safetensors", model);
  fs::remove(folder / "checkpoints/step-30/state.json");
  write_content(folder / "checkpoints/step-20/optimizer.safetensors", "short");
  Strings warnings;
  const auto warn = [&](const std::string& message) { warnings.push_back(message); };
  CHECK(CheckpointStore::find_newest(folder / "checkpoints", warn) == folder / "checkpoints/step-10");
  REQUIRE(warnings.size() == 3);
  CHECK(contains(warnings[0], "step-20/optimizer.safetensors: has 5 bytes, expected "));
  CHECK(contains(warnings[1], "step-30: is not a whole checkpoint"));
  CHECK(contains(warnings[2], "step-40/model.safetensors: is damaged"));
  CHECK(fs::read_symlink(folder / "checkpoints/latest") == "step-40");
  CHECK(store.newest(warn) == folder / "checkpoints/step-10");
  CHECK(fs::read_symlink(folder / "checkpoints/latest") == "step-10");
  CHECK(fs::exists(folder / "checkpoints/step-40"));  // the user's to remove
}

TEST_CASE("folders beside the checkpoints that have names of another form are neither read nor removed") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {.keep_last = 1, .keep_best = false});
  store.save("epoch-0001", stored_at(10), false);
  const Strings own = {"my-copy",         "my-epoch-0001", "my-epoch-0002",
                       "epoch-0001-good", ".keep.tmp-dir", ".epoch-0001.tmp-x"};
  for (const std::string& name : own) fs::copy(folder / "epoch-0001", folder / name, fs::copy_options::recursive);
  write_content(folder / "my-copy/state.json", "damaged");
  fs::create_directory(folder / ".epoch-0009.tmp-12345");  // of a killed save
  CHECK(store.newest(must_not_warn) == folder / "epoch-0001");
  CHECK(!fs::exists(folder / ".epoch-0009.tmp-12345"));
  store.save("epoch-0002", stored_at(10), false);  // of the same step
  for (const std::string& name : own) CHECK(fs::exists(folder / name));
  CHECK(!fs::exists(folder / "epoch-0001"));
  CHECK(store.list() == Strings{"epoch-0002"});
  CHECK(store.newest(must_not_warn) == folder / "epoch-0002");
}

TEST_CASE("a checkpoint that cannot be read is not taken for a damaged one: nothing older is used instead") {
  for (const char* file : {"state.json", "model.safetensors", "optimizer.safetensors", ""}) {
    CAPTURE(file);
    const TemporaryFolder folder;
    CheckpointStore store(folder.path(), {.keep_last = 2, .keep_best = false});
    store.save("step-10", stored_at(10), false);
    store.save("step-20", stored_at(20), false);
    const std::string path = folder / "step-20/" + file;
    if (*file) {  // ELOOP stands for whatever the system may say but "no such file"
      fs::rename(path, folder / "kept");
      fs::create_symlink(fs::path(path).filename(), path);
      CHECK_THROWS_AS(store.newest(must_not_warn), UnusableCheckpoint);
      CHECK_THROWS_AS(CheckpointStore::load(folder / "step-20"), UnusableCheckpoint);
      const std::string message = message_of<Error>([&] { store.newest(must_not_warn); });
      CHECK(contains(message, "step-20 cannot be used now, though it may be whole: "));
      CHECK(contains(message, "Too many levels of symbolic links"));
      store.save("step-30", stored_at(30), false);  // is not kept from saving, and lets it be
      CHECK(fs::exists(folder / "step-30/state.json"));
      fs::rename(folder / "kept", path);
    }
    CHECK(holds(CheckpointStore::load(folder / "step-20"), 20));
  }
}

TEST_CASE("where every checkpoint is damaged, that is an error, not a beginning") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {});
  for (const int64_t step : {10, 20}) store.save("step-" + std::to_string(step), stored_at(step), false);
  fs::remove(folder / "step-10/state.json");
  write_content(folder / "step-20/model.safetensors", content_of(folder / "step-20/model.safetensors") + "x");
  Strings warnings;
  const auto warn = [&](const std::string& message) { warnings.push_back(message); };
  CHECK_THROWS_AS(store.newest(warn), CheckpointError);
  CHECK(warnings.size() == 2);
  const std::string message = message_of<Error>([&] { store.newest(warn); });
  CHECK(
      contains(message, "all 2 checkpoints are damaged; the last by name: " + (folder / "step-20/model.safetensors")));
  fs::remove_all(folder / "step-20");
  CHECK(contains(message_of<Error>([&] { CheckpointStore::find_newest(folder.path(), [](const std::string&) {}); }),
                 "the only checkpoint is damaged: " + (folder / "step-10") + ": is not a whole checkpoint: "));
}

TEST_CASE("a checkpoint of a newer format is not skipped, and both versions are named") {
  const auto signed_text = [](const std::string& lines) {
    return "{\n  \"digest\": \"" + sha256("{\n" + lines) + "\",\n" + lines;
  };
  const std::string newer = R"(  "format": 2, "versions": {"trainrun": "7.1.0"}, "step": 20
})";
  for (const std::string& text : {signed_text(newer), "{" + newer}) {
    const TemporaryFolder folder;
    CheckpointStore store(folder.path(), {});
    for (const int64_t step : {10, 20}) store.save("step-" + std::to_string(step), stored_at(step), false);
    write_content(folder / "step-20/state.json", text);
    const std::string message = message_of<Error>([&] { store.newest(must_not_warn); });
    CHECK(contains(message, "has format 2, written by trainrun 7.1.0; this is trainrun " TRAINRUN_VERSION));
    CHECK_THROWS_AS(store.newest(must_not_warn), UnusableCheckpoint);
  }
}

TEST_CASE("a state.json that is signed but forged is an error in plain words") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {});
  const std::string path = store.save("step-10", stored_at(10), false);
  const std::string text = content_of(path + "/state.json");
  const auto forge = [&](const std::string& from, const std::string& to) {
    std::string lines = text.substr(text.find(",\n") + 2);
    REQUIRE(lines.find(from) != std::string::npos);
    lines.replace(lines.find(from), from.size(), to);
    write_content(path + "/state.json", "{\n  \"digest\": \"" + sha256("{\n" + lines) + "\",\n" + lines);
    return message_of<Error>([&] { CheckpointStore::load(path); });
  };
  CHECK(contains(forge("\"step\": 10", "\"step\": -1"), "its step is not a number >= 0"));
  CHECK(contains(forge("\"step\": 10", "\"step\": 18446744073709551615"), "its step is not a number >= 0"));
  CHECK(contains(forge("\"step\": 10", "\"step\": \"10\""), "its step is not a number >= 0"));
  CHECK(contains(forge("\"is_best\": false", "\"is_best\": 3"), "not the state of a checkpoint: type must be boolean"));
  CHECK(contains(forge("\"bytes\": ", "\"bytes\": \"many\", \"x\": "),
                 "not the state of a checkpoint: type must be number"));
  CHECK(contains(forge("\"$float\": \"inf\"", "\"$float\": 3"), "not the state of a checkpoint: type must be string"));
}

TEST_CASE("saving under a name that is taken replaces what it named") {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {.keep_last = 1, .keep_best = true});
  store.save("epoch-0001", stored_at(10), true);
  store.save("epoch-0001", stored_at(11), false);
  CHECK(holds(CheckpointStore::load(folder / "epoch-0001"), 11));
  CHECK(names_in(folder.path()) == Strings{"best", "epoch-0001", "latest"});
}

TEST_CASE("a checkpoint that is removed while a run is read is not called damaged: the newer one is found") {
  const TemporaryFolder folder;
  CheckpointStore store(folder / "checkpoints", {.keep_last = 1});
  store.save("step-00000002", stored_at(2), false);
  int64_t warnings = 0;
  const auto save_newer = [&](const std::string&) {  // as the run that goes on might do just then
    if (++warnings == 1) store.save("step-00000004", stored_at(4), false);
  };

  SUBCASE("while the folder is looked through") {
    fs::create_directory(folder / "checkpoints/epoch-0000");  // comes first, and is not whole
    CHECK(CheckpointStore::find_newest(folder / "checkpoints", save_newer) == folder / "checkpoints/step-00000004");
  }
  SUBCASE("while digests are checked") {
    CheckpointStore(folder / "checkpoints", {}).save("step-00000003", stored_at(3), false);
    std::fstream model(folder / "checkpoints/step-00000003/model.safetensors", std::ios::in | std::ios::out);
    model.seekp(-1, std::ios::end).put('x');
    model.close();
    CHECK(CheckpointStore::find_newest(folder / "checkpoints", save_newer) == folder / "checkpoints/step-00000004");
  }
}

TEST_CASE("where every checkpoint that is found is removed before it is read, that is said after a number of looks") {
  const TemporaryFolder folder;
  CheckpointStore store(folder / "checkpoints", {.keep_last = 1});
  int64_t step = 1;
  store.save("step-1", stored_at(step), false);
  fs::create_directory(folder / "checkpoints/epoch-0000");
  const auto save_newer = [&](const std::string&) {
    ++step;
    store.save("step-" + std::to_string(step), stored_at(step), false);
  };
  CHECK_THROWS_WITH_AS(CheckpointStore::find_newest(folder / "checkpoints", save_newer),
                       doctest::Contains("20 times each checkpoint was removed before it could be read"),
                       RemovedCheckpoint);
  CHECK(step == 21);
}

}  // namespace trainrun
