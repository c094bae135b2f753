#include <ATen/ops/tensor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/data/hub/dataset_card.h"
#include "registry/data/hub/hub_urls.h"
#include "registry/data/hub/path_glob.h"
#include "registry/data/hub/split_files.h"
#include "registry/data/path_patterns.h"
#include "registry/formats/files/yaml_file.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"
#include "tests/registry/dataset_support.h"

namespace trainrun {
namespace {

using test::contains;
using test::message_of;
using test::open_dataset;
using Paths = std::vector<std::string>;

SplitQuery ask(std::optional<std::string> split, std::optional<std::string> config = {},
               std::optional<std::string> files = {}) {
  return {std::move(split), std::move(config), std::move(files)};
}

SplitFiles found(const Paths& files, const SplitQuery& query = {}, const std::string& head = "") {
  const DatasetCard card = read_card(head.empty() ? "" : "---\n" + head + "---\n# Data\n", "README.md");
  return find_split(files, card, query, "org/name");
}

std::string fault(const Paths& files, const SplitQuery& query = {}, const std::string& head = "") {
  return message_of<DataError>([&] { found(files, query, head); });
}

TEST_CASE("a pattern matches paths as fsspec's glob does") {
  CHECK(matches_glob("data/*.csv", "data/a.csv"));
  CHECK_FALSE(matches_glob("data/*.csv", "data/b/a.csv"));
  CHECK_FALSE(matches_glob("*.csv", "data/a.csv"));
  CHECK(matches_glob("**/*.csv", "a.csv"));
  CHECK(matches_glob("**/*.csv", "b/c/a.csv"));
  CHECK_FALSE(matches_glob("**/a.csv", "ba.csv"));
  CHECK(matches_glob("data/**", "data/b/a.csv"));
  CHECK(matches_glob("train-0000?-of-[0-9][!a-f].csv", "train-00001-of-0g.csv"));
  CHECK_FALSE(matches_glob("a[!b-d]", "ac"));
  CHECK_FALSE(matches_glob("a?c", "a/c"));
  CHECK_FALSE(matches_glob(std::string(2000, '*') + "b", std::string(2000, 'a')));  // soon
}

TEST_CASE("** stands for folders in a pattern of this machine's files, too") {
  const TemporaryFolder folder;
  for (const char* name : {"a.txt", "x/b.txt", "x/y/c.txt", "x/y/d.csv", ".hidden/e.txt", "x/.f.txt"}) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    folder.write(name, "");
  }
  const auto found_by = [&](const std::string& pattern) {
    Paths paths = matching_paths({folder / pattern}, "Texts");
    for (std::string& path : paths) path.erase(0, (folder / "").size());
    return paths;
  };
  CHECK(found_by("**/*.txt") == Paths{"a.txt", "x/b.txt", "x/y/c.txt"});
  CHECK(found_by("x/**/*.txt") == Paths{"x/b.txt", "x/y/c.txt"});
  CHECK(found_by("*/**/c.*") == Paths{"x/y/c.txt"});
  CHECK(found_by("**/.hidden/*.txt") == Paths{".hidden/e.txt"});
  CHECK(contains(message_of<DataError>([&] { found_by("**/*.json"); }), "Texts: there is no file"));
  CHECK(contains(message_of<DataError>([&] { found_by("z/**/*.txt"); }), "Texts: there is no file"));
}

TEST_CASE("a pattern that names a set of characters means what Python's means by it") {
  CHECK(matches_glob("[^a].csv", "^.csv"));
  CHECK_FALSE(matches_glob("[^a].csv", "b.csv"));
  CHECK(has_whole_folders("a/**/b/**"));
  CHECK_FALSE(has_whole_folders("a/b**/c"));
  CHECK_FALSE(has_whole_folders("**.csv"));
}

TEST_CASE("the files of a split are found by their names, those of several shards in order") {
  const Paths shards = {"README.md",
                        "data/train-00001-of-00002-ab.parquet",
                        "data/train-00000-of-00002-cd.parquet",
                        "data/test-00000-of-00001.parquet",
                        "data/extra-00000-of-00001.parquet",
                        "train.csv"};
  CHECK(found(shards).files == Paths{"data/train-00000-of-00002-cd.parquet", "data/train-00001-of-00002-ab.parquet"});
  CHECK(found(shards, ask("extra")).files == Paths{"data/extra-00000-of-00001.parquet"});
  CHECK(found(shards, ask("eval")).split == "test");
  CHECK(fault(shards, ask("validation")) ==
        "org/name: has no split validation; did you mean test? It has train, test, extra");
  CHECK(contains(fault(shards, ask("exttra")), "has no split exttra; did you mean extra?"));
  for (const char* name : {"dev.csv", "my_valid-2.csv", "x/val.part.csv", "validation/a.csv", "a/my-dev-set/b.csv"}) {
    CAPTURE(name);
    CHECK(found({"train.csv", name}, ask("validation")).files == Paths{name});
  }
  CHECK(contains(fault({"constrained.csv", "trainer.csv"}, ask("test")), "has no split test; it has train"));
  CHECK(found({"b.jsonl", "a.jsonl", "config.json", ".hidden.jsonl", "notes.md"}).files == Paths{"a.jsonl", "b.jsonl"});
  CHECK(contains(fault({"train_test/a.csv"}), "train_test/a.csv is that of the splits train, test"));
}

TEST_CASE("what is ambiguous or not there is refused with what there is") {
  const Paths two = {"de/train.csv", "en/train.csv", "en/test.csv"};
  CHECK(contains(fault(two), "lies in several folders"));
  CHECK(contains(fault(two), "config: de; it has de, en"));
  CHECK(found(two, ask("train", "en")).files == Paths{"en/train.csv"});
  CHECK(contains(fault(two, ask("train", "enn")), "has no config enn; did you mean en? It has de, en"));
  CHECK(contains(fault({"train.csv", "train.parquet"}), "files of several kinds, train.csv and train.parquet"));
  CHECK(found({"train.csv", "train.parquet"}, ask({}, {}, "*.parquet")).files == Paths{"train.parquet"});
  CHECK(found({"x/train.csv", "x/test.csv", "test.csv"}, ask("test", {}, "x/*")).files == Paths{"x/test.csv"});
  CHECK(contains(fault({"a.csv"}, ask({}, {}, "b.csv")), "has no file b.csv"));
  CHECK(contains(fault({"name.py", "README.md"}), "revision: refs/convert/parquet"));
  CHECK(contains(fault({"a.png"}), "has no Parquet, CSV or JSON lines files; it has a.png"));
}

TEST_CASE("the card's configs say which files are of which split") {
  const std::string head =
      "configs:\n- config_name: en\n  data_files:\n  - split: train\n    path: [b.csv, 'a*.csv']\n  - split: dev\n    "
      "path: "
      "c.csv\n  sep: ;\n  skiprows: 1\n- config_name: de\n  data_dir: de\n- config_name: raw\n  data_files: c.csv\n";
  const Paths files = {"a1.csv", "a2.csv", "b.csv", "c.csv", "de/train.csv", "README.md"};
  const SplitFiles train = found(files, ask("train", "en"), head);
  CHECK(train.files == Paths{"b.csv", "a1.csv", "a2.csv"});
  CHECK(train.delimiter == ";");
  CHECK(train.unread == Paths{"skiprows"});
  CHECK(found(files, ask("validation", "en"), head).files == Paths{"c.csv"});
  CHECK(found(files, ask("train", "de"), head).files == Paths{"de/train.csv"});
  CHECK(found(files, ask("train", "raw"), head).files == Paths{"c.csv"});
  CHECK(contains(fault(files, {}, head), "has several configs; say which: config: en; it has en, de, raw"));
  CHECK(contains(fault(files, ask("train", "fr"), head), "has no config fr"));
  CHECK(found(files, {}, head + "  default: true\n").config == "raw");
  CHECK(found(files, {}, "configs:\n- config_name: default\n  data_files: {train: b.csv}\n- config_name: x\n").files ==
        Paths{"b.csv"});
  CHECK(contains(fault(files, {}, "configs:\n- data_files: gone*.csv\n"), "its card lists gone*.csv"));
  CHECK(contains(fault(files, {}, "configs:\n- data_files: [{split: train}]\n"), "expected {split: …, path: …}"));
  CHECK(contains(fault(files, {}, "configs:\n- config_name: [x\n"), "README.md:4: is not YAML"));
}

TEST_CASE("a card's YAML is read within bounds") {
  CHECK(read_yaml("a: &x [1, no]\nb: *x\nc: ~\n", "f").dump() == R"({"a":["1","no"],"b":["1","no"],"c":null})");
  const auto error = [](const std::string& text) { return message_of<DataError>([&] { read_yaml(text, "f"); }); };
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string one = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + one;
    for (int j = 0; j < 9; ++j) bomb += ", " + one;
    bomb += "]\n";
  }
  CHECK(contains(error(bomb), "holds too many values"));
  CHECK(contains(error(std::string(40, '[') + std::string(40, ']')), "is nested too deeply"));
  CHECK(contains(error("a: 1\na: 2\n"), "f:2: the key 'a' occurs twice"));
}

TEST_CASE("the names of classes are those of the card's or the file's features") {
  const DatasetCard card = read_card(
      "---\ndataset_info:\n- config_name: en\n  features:\n  - name: label\n    dtype:\n      class_label:\n        "
      "names:\n"
      "          '1': pos\n          '0': neg\n  - {name: a, dtype: float32}\n- config_name: de\n---\n",
      "README.md");
  CHECK(card.class_names("en", "label") == Paths{"neg", "pos"});
  CHECK(card.class_names("en", "a").empty());
  CHECK(card.class_names("de", "label").empty());
  const std::string features = R"({"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"},)"
                               R"( "a": {"dtype": "float32", "_type": "Value"}}}})";
  CHECK(class_names_in_metadata(features, "label", "f") == Paths{"neg", "pos"});
  CHECK(class_names_in_metadata(features, "a", "f").empty());
  CHECK(class_names_in_metadata("{", "a", "f").empty());
}

TEST_CASE("a shard that names tell of is missed") {
  CHECK(missing_shard({"a-00000-of-00002.csv", "a-00001-of-00002.csv", "b.csv"}).empty());
  CHECK(missing_shard({"a-00000-of-00003-x.csv", "a-00002-of-00003-y.csv"}) == "a-00001-of-00003");
}

TEST_CASE("a URL of the hub names a repository and a file in it") {
  const HubUrl plain = parse_hub_url("hf://datasets/org/name/data/a.csv");
  CHECK(plain.name.id == "org/name");
  CHECK(plain.name.revision == "main");
  CHECK(plain.file == "data/a.csv");
  CHECK(parse_hub_url("hf://datasets/org/name@refs%2Fpr%2F1/a.csv").name.revision == "refs/pr/1");
  const HubUrl converted = parse_hub_url("hf://datasets/org/name@refs/convert/parquet/x/train/0.parquet");
  CHECK(converted.name.revision == "refs/convert/parquet");
  CHECK(converted.file == "x/train/0.parquet");
  CHECK(parse_hub_url("hf://datasets/org/name").file.empty());
  CHECK(parse_hub_url("hf://datasets/org/name@v1/").name.text() == "org/name@v1");
  CHECK(parse_hub_url("hf://datasets/org/name/**/a.csv").file == "**/a.csv");
  for (const char* wrong :
       {"hf://org/name/a.csv", "hf://datasets/org", "hf://datasets/org/name/../a", "hf://datasets/org/name/a/b**"}) {
    CAPTURE(wrong);
    CHECK_FALSE(message_of<DataError>([&] { parse_hub_url(wrong); }).empty());
  }
}

TEST_CASE("a folder that is laid out as a repository is read as one table, its classes named by the card") {
  const TemporaryFolder folder;
  folder.write(
      "README.md",
      "---\ndataset_info:\n  features:\n  - name: kind\n    dtype:\n      class_label:\n        names: {'0': ant, '1': "
      "bee}\n---\n");
  folder.write("train-1.csv", "kind,a\n0,1\n1,2\n");
  folder.write("train-2.csv", "a,kind\n3,1\n");
  const auto data = open_dataset(R"({"type": "HubDataset", "path": ")" + folder.path() + R"(", "label": "kind"})");
  CHECK(data->size() == 3);
  const Batch batch = data->get(at::tensor({0, 1, 2}, at::kLong));
  CHECK(batch.fields()[0].tensor.flatten().equal(at::tensor({1.F, 2.F, 3.F})));
  CHECK(batch.fields()[1].tensor.equal(at::tensor({0, 1, 1}, at::kLong)));
  CHECK(data->facts().field("label").class_names == Paths{"ant", "bee"});
  CHECK(data->facts().place(2, "a") == folder.path() + "/train-2.csv:2:a");
  CHECK(data->info().find("label")->num_classes == 2);
}

}  // namespace
}  // namespace trainrun
