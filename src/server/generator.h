// What the routes ask of the engine: a Service (engine/service.h), or a stand-in for it in tests.
#pragma once

#include <memory>
#include <string>

#include "engine/service.h"

namespace sluice::server {

// Every function as that of Service with the same name.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual uint64_t submit(GenerationRequest request, std::shared_ptr<GenerationListener> listener) = 0;
  virtual void cancel(uint64_t request) = 0;
  virtual ServiceStatus status() const = 0;
  virtual void save_slot(uint32_t slot, const std::string& file, Service::SlotDone done) = 0;
  virtual void restore_slot(uint32_t slot, const std::string& file, Service::SlotDone done) = 0;
  virtual void erase_slot(uint32_t slot, Service::SlotDone done) = 0;
};

// `service` must outlive it.
std::unique_ptr<Generator> generator_of(Service& service);

}  // namespace sluice::server
