#include "tests/parity/fuzz_readers.h"

#include <ATen/ops/arange.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "registry/data/data_file.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/images/decode.h"
#include "registry/formats/text/chat_template.h"
#include "registry/formats/text/tokenizer_files.h"
#include "registry/graph/shape_mode.h"
#include "registry/image_data/shards/shard_index.h"
#include "registry/kinds/graph_builder.h"
#include "registry/language/error.h"
#include "registry/tensors/files/pickle.h"
#include "registry/tensors/files/pretrained_folder.h"
#include "registry/tensors/files/tensor_file.h"
#include "registry/tensors/files/torch_file.h"
#include "runner/generate/generation_config.h"
#include "runner/model/recipe_loader.h"
#include "runner/run/checkpoint_store.h"
#include "tests/parity/fuzz.h"
#include "tests/parity/fuzz_changes.h"
#include "tests/parity/probe_spec.h"

namespace trainrun {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Whether it is an error of ours.
bool is_own(const std::exception& error) { return dynamic_cast<const Error*>(&error) != nullptr; }

std::string folder_of(const std::string& path) { return fs::path(path).parent_path().string(); }

// --- tensors

/// Reads every element, so that a sanitizer sees whether all of them lie in memory that is the tensor's. A few bytes
/// that are said to be a great many elements, as Python's expand says it, are looked at from both ends.
void use(const at::Tensor& tensor) {
  constexpr int64_t kMostCopied = int64_t{1} << 20;
  if (tensor.numel() == 0) return;
  if (tensor.numel() <= kMostCopied) {
    const at::Tensor copy = tensor.clone(at::MemoryFormat::Contiguous);
    std::string bytes(copy.nbytes(), '\0');
    std::memcpy(bytes.data(), copy.const_data_ptr(), bytes.size());
    if (sha256(bytes).empty()) throw std::logic_error("there is no digest");
    return;
  }
  at::Tensor first = tensor, last = tensor;
  while (first.dim() > 0) {
    first = first.select(0, 0);
    last = last.select(0, -1);
  }
  use(first);
  use(last);
}

void use(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) use(tensor);
}

void use(const Tokenizer& tokenizer) {
  const Encoding encoding =
      tokenizer.encode_pair("Hello, w\u00F6rld's 123  \u4F60\u597D <s>", "\xFF \U0001F600\n\t\u0301x");
  for (const int64_t id : encoding.ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) throw std::logic_error("an id is beyond the vocabulary");
  }
  tokenizer.decode(encoding.ids, false);
  tokenizer.decode({0, 1, 2, 3, -1, INT64_MAX}, true);
}

void read_tensor_file(const FuzzedFile& file) {
  const auto tensors = open_tensor_file(file.path);
  for (size_t i = 0; i < tensors->entries().size(); ++i) {
    const at::Tensor tensor = tensors->read(i);
    const TensorFile::Entry& entry = tensors->entries()[i];
    if (tensor.sizes() != at::IntArrayRef(entry.shape) || tensor.scalar_type() != entry.dtype) {
      throw std::logic_error("a tensor is not as its entry says");
    }
    use(tensor);
  }
}

// --- checkpoints

/// Writes into state.json what the checkpoint's other files have become, as their digests: what was changed in them is
/// read.
void note_digests(const std::string& folder) {
  const fs::path path = fs::path(folder) / "state.json";
  const std::string text = read_file(path.string(), 1 << 24);
  json state = json::parse(text, nullptr, false);
  if (!state.is_object() || !state.contains("files") || !state["files"].is_object()) return;
  for (const auto& [name, digest] : state["files"].items()) {
    const fs::path own = fs::path(folder) / fs::path(name).filename();
    if (!digest.is_object() || !fs::is_regular_file(own)) continue;
    const FileDigest found = digest_file(own.string());
    digest["sha256"] = found.sha256;
    digest["bytes"] = found.bytes;
  }
  state.erase("digest");
  const std::string body = state.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << "{\n  \"digest\": \"" << sha256(body) << "\",\n" << body.substr(2);
}

FuzzedReader checkpoint_reader(const std::vector<FuzzSeed>& seeds) {
  FuzzedReader reader{"checkpoint", {}};
  reader.read = [&seeds](const FuzzedFile& file) {
    const std::string folder = folder_of(file.path);
    const bool is_state = seeds[file.seed].name == "state.json";
    if (!is_state && file.content.size() % 4 > 0) note_digests(folder);
    CheckpointStore::verify(folder);
    const CheckpointContent content = CheckpointStore::load(folder);
    use(content.model);
    use(content.optimizer);
    CheckpointStore::find_newest(folder_of(folder), [](const std::string&) {});
  };
  reader.refuses = [](const std::exception& error) {
    return dynamic_cast<const CheckpointError*>(&error) || dynamic_cast<const UnusableCheckpoint*>(&error);
  };
  reader.mend = [](std::string& content, const FuzzSeed& seed) {
    if (seed.name == "state.json") mend_checkpoint_state(content);
  };
  reader.words = {"\"format\"", "\"files\"", "\"$float\"", "\"sha256\"", "\"bytes\"", "{\"$float\": 1}", "\n"};
  return reader;
}

// --- pictures and archives

void read_image(const FuzzedFile& file) {
  const auto how = file.content.size() % 3;  // a gray one, a mask, or one with colours
  if (how == 1) {
    decode_mask(file.content);
  } else {
    decode_image(file.content, how == 0 ? 1 : 3);
  }
}

void read_changed_shard(const FuzzedFile& file) {
  ShardNames names;
  if (file.content.size() % 2 == 0) names.label = "json.label";
  for (const ShardSample& sample : read_shard(tar_in_memory("shard", file.content), names)) {
    const bool is_within = sample.offset <= file.content.size() && sample.size <= file.content.size() - sample.offset;
    if (!is_within || sample.label < 0) throw std::logic_error(sample.name + " is not within its shard");
  }
}

// --- texts

FuzzedReader chat_template_reader(const json& request) {
  const auto chats = std::make_shared<const nlohmann::ordered_json>(
      nlohmann::ordered_json::parse(request.at("chats").get<std::string>()));
  FuzzedReader reader{"chat_template", {}};
  reader.reads_seeds = false;  // some ask for variables that there are not
  reader.read = [chats](const FuzzedFile& file) {
    const ChatTemplate made = file.path.ends_with(".json") ? open_chat_template(folder_of(file.path), std::nullopt)
                                                           : ChatTemplate(file.path, file.content, {{"eos", "</s>"}});
    for (const auto& chat : *chats) {
      const auto& tools = chat.at("tools");
      const ChatText text = made.render(chat.at("messages"), tools.is_null() ? nullptr : &tools, true);
      for (const auto& [begin, end] : text.answers) {
        if (begin > end || end > text.text.size()) throw std::logic_error("an answer is not within the text");
      }
    }
  };
  for (const char* word : {"{% for x in messages %}",
                           "{% endfor %}",
                           "{% if ",
                           "{% else %}",
                           "{% endif %}",
                           "{% set x = ",
                           "{% macro f(x) %}",
                           "{% endmacro %}",
                           "{% generation %}",
                           "{% endgeneration %}",
                           "{{ f(f) }}",
                           "{{",
                           "}}",
                           "%}",
                           "{#",
                           "#}",
                           "-%}",
                           "|tojson",
                           "|map('upper')",
                           "|sort(reverse=true)",
                           "|join(x)",
                           "|length",
                           "|unique",
                           "|list",
                           "|groupby",
                           "|batch(1)",
                           "[::-1]",
                           "[-1]",
                           "*100000",
                           "**99",
                           "range(100000)",
                           "namespace(a=1)",
                           "loop.changed(x)",
                           "caller()",
                           "{% raw %}",
                           "{% break %}",
                           "messages[0]",
                           "is defined",
                           " ~ ",
                           " in ",
                           " not ",
                           ".replace('', 'ab')",
                           ".split('a')",
                           ".strip(x)",
                           "'\\x41'",
                           "%",
                           "//0"}) {
    reader.words.emplace_back(word);
  }
  return reader;
}

void read_tokenizer_folder(const FuzzedFile& file) { use(*open_tokenizer(folder_of(file.path))); }

/// By the content alone, as read_json_file gives it.
void read_tokenizer_content(const FuzzedFile& file) {
  const json content = json::parse(file.content, nullptr, false);
  if (content.is_discarded()) throw DataError("not JSON");
  use(PipelineTokenizer(read_tokenizer_json("tokenizer.json", content)));
}

// --- what a recipe describes

void read_dataset(const Component<DatasetKind>& component) {
  const auto dataset = component.build({});
  dataset->open();
  const DatasetInfo info = dataset->info();
  const int64_t size = dataset->size();
  if (size == 0) return;
  const at::Tensor all = at::arange(size, at::kLong);
  dataset->learn(all);
  constexpr int64_t kAtOnce = 4096;
  const Batch batch = dataset->get(all.slice(0, 0, std::min(size, kAtOnce)));
  const Batch last = dataset->get(all.slice(0, std::max<int64_t>(0, size - kAtOnce)));
  for (const FieldInfo& field : info.fields) {
    for (const Batch& one : {batch, last}) {
      const at::Tensor& tensor = one.at(field.name);
      const bool is_wide = tensor.scalar_type() == at::kDouble;  // until transforms have scaled it
      const at::ScalarType type = is_wide ? at::kFloat : tensor.scalar_type();
      if (tensor.size(0) != std::min(size, kAtOnce) || type != field.dtype) {
        throw std::logic_error(field.name + " is not as described");
      }
      use(tensor);
    }
  }
}

FuzzedReader reader_of_spec(const Catalog& catalog, const json& request, const LayerInputs& inputs) {
  const std::string name = request.at("reader");
  const json& spec = request.at("spec");
  if (name == "dataset") {
    const auto read = [&catalog, spec](const FuzzedFile&) {  // read anew each time: a table remembers what it inferred
      read_dataset(read_spec<Component<DatasetKind>>(catalog, spec));
    };
    return {.name = spec.at("type"), .read = read};
  }
  const auto layers = std::make_shared<const LayerList>(read_spec<LayerList>(catalog, json::array({spec})));
  const auto build = [layers, inputs](const FuzzedFile&) {
    const ShapeMode shapes;
    build_model_graph(*layers, inputs);
  };
  return {.name = spec.at("type"), .read = build, .refuses = is_own, .names_file = false};
}

/// Every row of the columns of a Parquet or Arrow file whose type is read.
void read_arrow_file(const FuzzedFile& file) {
  const auto is_readable = [&](size_t place) {
    const auto reader = open_arrow_table(file.path, ObjectColumns::kRead);
    try {
      reader->read_only({place});
      return true;
    } catch (const DataError&) {
      return false;
    }
  };
  const auto opened = open_arrow_table(file.path, ObjectColumns::kRead);
  std::vector<size_t> places;
  for (size_t i = 0; i < opened->names().size(); ++i) {
    if (is_readable(i)) places.push_back(i);
  }
  if (places.empty()) throw DataError(file.path + ": there is no column to read");
  opened->read_only(places);
  std::vector<Cell> row;
  while (opened->next(row)) {
    if (row.size() != opened->names().size()) throw std::logic_error("a row lacks cells");
  }
}

void read_to_the_end(const FuzzedFile& file) {
  DataFile data(file.path);
  std::array<char, size_t{1} << 16> piece{};
  while (data.read(piece.data(), piece.size()) > 0) continue;
}

// --- all of them

/// What Python's pickles of tensors are put together from.
std::vector<std::string> pickle_words() {
  std::vector<std::string> words = {"ctorch._utils\n_rebuild_tensor_v2\n",
                                    "ccollections\nOrderedDict\n",
                                    "ctorch\nFloatStorage\n",
                                    "cos\nsystem\n",
                                    "\x80\x02",
                                    "}q\x01",
                                    "K\x01",
                                    "M\xff\xff",
                                    "J\xff\xff\xff\xff",
                                    "h\x01",
                                    "q\x01",
                                    "\x8a\x01\x7f"};
  words.emplace_back("X\x01\0\0\0a", 6);
  for (const char opcode : std::string("().012NQRabelst]}\x85\x86\x87\x88\x8f\x90\x91\x92\x93\x94")) {
    words.emplace_back(1, opcode);
  }
  return words;
}

FuzzedReader reader_named(const std::string& name, const Catalog& catalog, const json& request,
                          const std::vector<FuzzSeed>& seeds) {
  const auto mend_archive = [](std::string& content, const FuzzSeed&) { mend_zip(content); };
  if (name == "safetensors") {
    return {.name = name, .read = [](const FuzzedFile& file) { use(read_safetensors(file.path).tensors); }};
  }
  if (name == "torch_file") {
    const auto read = [](const FuzzedFile& file) { use(load_weights(file.path)); };
    return {.name = name, .read = read, .mend = mend_archive, .words = pickle_words()};
  }
  if (name == "pickle") {
    const auto read = [](const FuzzedFile& file) { parse_pickle(file.content); };
    return {.name = name, .read = read, .words = pickle_words(), .names_file = false};
  }
  if (name == "tensor_file") return {.name = name, .read = read_tensor_file, .mend = mend_archive};
  if (name == "pretrained_folder") {
    const auto read = [](const FuzzedFile& file) { use(read_pretrained_folder(folder_of(file.path))); };
    return {.name = name, .read = read, .mend = mend_archive};
  }
  if (name == "checkpoint") return checkpoint_reader(seeds);
  if (name == "arrow") return {.name = name, .read = read_arrow_file};
  if (name == "gzip") return {.name = name, .read = read_to_the_end};
  if (name == "images") {
    const auto mend = [](std::string& content, const FuzzSeed&) { mend_png(content); };
    return {.name = name, .read = read_image, .mend = mend, .names_file = false, .reads_seeds = false};
  }
  if (name == "shards") {
    const auto mend = [](std::string& content, const FuzzSeed&) { mend_tar(content); };
    return {.name = name, .read = read_changed_shard, .mend = mend, .names_file = false};
  }
  if (name == "tokenizer_json") return {.name = name, .read = read_tokenizer_content, .names_file = false};
  if (name == "tokenizer_folder") return {.name = name, .read = read_tokenizer_folder};
  if (name == "chat_template") return chat_template_reader(request);
  if (name == "generation_config") {
    const auto read = [](const FuzzedFile& file) {
      std::vector<std::string> notes;
      with_generation_config({}, folder_of(file.path), notes);
    };
    return {.name = name, .read = read};
  }
  if (name == "recipe") {
    const auto read = [&catalog](const FuzzedFile& file) {
      Catalog own = catalog;
      load_recipe(file.path, {}, own);
    };
    return {.name = name, .read = read, .refuses = is_own};
  }
  throw Error("the probe knows no reader '" + name + "'");
}

std::vector<FuzzSeed> seeds_of(const json& files) {
  constexpr uint64_t kMostBytes = 1 << 24;
  std::vector<FuzzSeed> seeds;
  for (const json& file : files) {
    const auto path = file.is_string() ? file.get<std::string>() : file.at("path").get<std::string>();
    const auto place = file.is_string() ? std::string() : file.at("place").get<std::string>();
    seeds.push_back({fs::path(place.empty() ? path : place).filename().string(), read_file(path, kMostBytes), place});
  }
  return seeds;
}

}  // namespace

json run_fuzzer(const Catalog& catalog, const json& request, const LayerInputs& inputs) {
  const std::vector<FuzzSeed> seeds = seeds_of(request.at("files"));
  FuzzedReader reader = request.contains("spec") ? reader_of_spec(catalog, request, inputs)
                                                 : reader_named(request.at("reader"), catalog, request, seeds);
  if (request.value("mend", "") == "token_cache") {
    reader.mend = [](std::string& content, const FuzzSeed&) { mend_token_cache(content); };
  }
  reader.names_file = reader.names_file && request.value("names_file", true);
  for (const json& word : request.value("words", json::array())) reader.words.push_back(word);
  FuzzPlan plan;
  plan.first = request.value("first", plan.first);
  plan.rounds = request.value("rounds", plan.rounds);
  plan.seconds = request.value("seconds", plan.seconds);
  plan.seed = request.value("seed", plan.seed);
  plan.folder = request.at("folder");
  const FuzzResult result = fuzz(reader, seeds, plan);
  return {{"rounds", result.rounds},         {"read", result.read},
          {"refused", result.refused},       {"most_seconds", result.most_seconds},
          {"most_bytes", result.most_bytes}, {"findings", result.findings}};
}

}  // namespace trainrun
