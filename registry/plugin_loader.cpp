#include "registry/plugin_loader.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "registry/catalog.h"
#include "registry/formats/files/file_io.h"
#include "registry/tensors/component_error.h"
#include "registry/tensors/rare_kernels.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// Two paths may lead to one file.
bool is_loaded(const std::string& path, const Catalog& catalog) {
  bool found = false;
  catalog.for_each([&](const auto& registry) {
    for (const auto& [name, entry] : registry.entries()) {
      std::error_code gone;
      found = found || (!entry.origin.empty() && fs::equivalent(entry.origin, path, gone));
    }
  });
  return found;
}

[[noreturn]] void throw_unopened(const std::string& path, const std::string& reason) {
  throw PluginError("the plugin " + path + " cannot be opened: " + reason +
                    "; build it with trainrun_add_plugin() of this trainrun's CMake package");
}

/// Reads of an ELF file for this machine what is asked for; nothing where the file does not hold so much.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : path_(path), file_(path) {}

  /// The content of the section called `name`; nothing where there is none. Throws PluginError where the file is not a
  /// shared library, or is cut off: dlopen would map it, and the program would die of SIGBUS.
  std::optional<std::string> section(std::string_view name) {
    ElfW(Ehdr) header{};
    if (!read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
      throw_unopened(path_, "it is not a shared library");
    }
    const bool has_table = header.e_shentsize == sizeof(ElfW(Shdr)) && header.e_shnum > 0;
    const uint64_t table_bytes = uint64_t{header.e_shnum} * sizeof(ElfW(Shdr));
    if (header.e_shoff > file_.size() || table_bytes > file_.size() - header.e_shoff) {
      throw_unopened(path_, "the end of the file is missing");
    }
    ElfW(Shdr) names{};
    if (!has_table || header.e_shstrndx >= header.e_shnum) return std::nullopt;
    read(header.e_shoff + header.e_shstrndx * sizeof names, names);
    for (uint64_t i = 0; i < header.e_shnum; ++i) {
      ElfW(Shdr) section{};
      read(header.e_shoff + i * sizeof section, section);
      if (text(names.sh_offset + section.sh_name, name.size() + 1) != std::string(name) + '\0') continue;
      return text(section.sh_offset, std::min<uint64_t>(section.sh_size, kMostTagBytes));
    }
    return std::nullopt;
  }

 private:
  static constexpr uint64_t kMostTagBytes = 1024;

  template <class T>
  bool read(uint64_t offset, T& value) {
    if (offset > file_.size() || sizeof value > file_.size() - offset) return false;
    file_.seek(offset);
    file_.read(&value, sizeof value);
    return true;
  }
  std::string text(uint64_t offset, uint64_t size) {
    if (offset > file_.size() || size > file_.size() - offset) return "";
    std::string bytes(size, '\0');
    file_.seek(offset);
    file_.read(bytes.data(), size);
    return bytes;
  }

  std::string path_;
  FileReader file_;
};

/// What the plugin was built for, without running any of its code.
std::string abi_of(const std::string& path) {
  try {
    const auto tag = ElfFile(path).section(own_plugin_abi().section);
    if (tag) return tag->substr(0, tag->find('\0'));
  } catch (const DataError& error) {
    const std::string reason = error.what();
    throw_unopened(path, reason.starts_with(path + ": ") ? reason.substr(path.size() + 2) : reason);
  }
  throw PluginError(path +
                    " is not a trainrun plugin, or one for an older trainrun; write TRAINRUN_PLUGIN(catalog) { … } in "
                    "it, and build it again");
}

/// Never closed: the catalog, layers and exceptions refer to its code. One that is refused is of no further use either,
/// but what it registered with LibTorch while it was opened stays.
void* open_library(const std::string& path) {
  const std::string absolute = fs::absolute(path);
  // glibc declares that dlopen throws nothing, yet what the library's initialisers throw does come out of it. The
  // compiler must not know what is called here, or it would leave the handler out and such a plugin would end the
  // program. The dynamic loader's lock then stays with this thread, which only has the error left to report.
  void* (*volatile open)(const char*, int) = dlopen;
  try {
    if (void* library = open(absolute.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  } catch (const std::exception& error) {
    throw PluginError("the plugin " + path + " failed while its global objects were initialised: " + error_text(error) +
                      "; correct them and build it again");
  }
  std::string reason = dlerror();
  if (reason.starts_with(absolute + ": ")) reason.erase(0, absolute.size() + 2);
  throw_unopened(path, reason);
}

template <class Function>
Function* symbol(void* library, const std::string& path, const char* name) {
  if (void* found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  throw PluginError(path + " is not a trainrun plugin: it has no " + name +
                    "; write TRAINRUN_PLUGIN(catalog) { … } in it");
}

}  // namespace

void load_plugin(const std::string& path, Catalog& catalog) {
  std::error_code unreadable;  // dlopen says why
  if (fs::status(path, unreadable).type() == fs::file_type::not_found) throw PluginError("there is no plugin " + path);
  if (is_loaded(path, catalog)) throw PluginError("the plugin " + path + " is loaded already; name it once");
  if (const std::string abi = abi_of(path); abi != own_plugin_abi().tag) {
    throw PluginError("the plugin " + path + " was built for " + abi + ", this is " +
                      std::string(own_plugin_abi().tag) + "; build it again");
  }
  register_rare_kernels();
  void* library = open_library(path);
  auto* const add = symbol<void(Catalog&)>(library, path, "trainrun_plugin_register");
  Catalog extended = catalog;  // a plugin that fails half-way leaves nothing behind
  extended.for_each([&](auto& registry) { registry.set_origin(path); });
  extended.fusions.set_origin(path);
  try {
    add(extended);
  } catch (const PluginError& error) {
    throw PluginError("the plugin " + path + ": " + error.what());
  } catch (const std::exception& error) {
    throw PluginError("the plugin " + path + " failed while it registered its components: " + error_text(error) +
                      "; correct its TRAINRUN_PLUGIN(catalog) { … } and build it again");
  }
  extended.for_each([&](auto& registry) { registry.set_origin(""); });
  extended.fusions.set_origin("");
  catalog = std::move(extended);
}

}  // namespace trainrun
