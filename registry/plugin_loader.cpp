#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "registry/component_error.h"
#include "registry/plugin.h"

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

/// A library that lacks its end, where the section headers lie: a copy or a linker was cut short. dlopen would map it,
/// and the program would die of SIGBUS where the file has no more.
bool is_cut_off(const std::string& path) {
  ElfW(Ehdr) header{};
  std::ifstream file(path, std::ios::binary);
  const bool is_elf =
      file.read(reinterpret_cast<char*>(&header), sizeof header) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
  std::error_code unreadable;
  const uintmax_t size = fs::file_size(path, unreadable);
  return is_elf && !unreadable && header.e_shoff + uintmax_t{header.e_shnum} * header.e_shentsize > size;
}

[[noreturn]] void throw_unopened(const std::string& path, const std::string& reason) {
  throw PluginError("the plugin " + path + " cannot be opened: " + reason +
                    "; build it with trainrun_add_plugin() of this trainrun's CMake package");
}

/// Never closed: the catalog, layers and exceptions refer to its code. One that is refused is of no further use either,
/// but what it registered with LibTorch while it was opened stays.
void* open_library(const std::string& path) {
  if (is_cut_off(path)) throw_unopened(path, "the end of the file is missing");
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
  throw PluginError(path + " is no trainrun plugin: it has no " + name +
                    "; write TRAINRUN_PLUGIN(catalog) { … } in it");
}

}  // namespace

void load_plugin(const std::string& path, Catalog& catalog) {
  std::error_code unreadable;  // dlopen says why
  if (fs::status(path, unreadable).type() == fs::file_type::not_found) throw PluginError("there is no plugin " + path);
  if (is_loaded(path, catalog)) throw PluginError("the plugin " + path + " is loaded already; name it once");
  void* library = open_library(path);
  const std::string abi = symbol<const char*()>(library, path, "trainrun_plugin_abi")();
  if (abi != TRAINRUN_ABI) {
    throw PluginError("the plugin " + path + " was built for " + abi + ", this is " TRAINRUN_ABI "; build it again");
  }
  auto* const add = symbol<void(Catalog&)>(library, path, "trainrun_plugin_register");
  Catalog extended = catalog;  // a plugin that fails half-way leaves nothing behind
  extended.for_each([&](auto& registry) { registry.set_origin(path); });
  try {
    add(extended);
  } catch (const PluginError& error) {
    throw PluginError("the plugin " + path + ": " + error.what());
  } catch (const std::exception& error) {
    throw PluginError("the plugin " + path + " failed while it registered its components: " + error_text(error) +
                      "; correct its TRAINRUN_PLUGIN(catalog) { … } and build it again");
  }
  extended.for_each([&](auto& registry) { registry.set_origin(""); });
  catalog = std::move(extended);
}

}  // namespace trainrun
