/* An NVML library made of constants: what sampling costs in Python and ctypes, without a driver behind it.

   Built by telemetry_cost.py as libnvidia-ml.so.1. STUB_GPUS says how many GPUs there are. Functions that are not here
   are missing, as in an old driver: NVML_ERROR_FUNCTION_NOT_FOUND. Structures are laid out as in nvml.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void *device;
typedef struct { unsigned int field, scope; long long at, took; int type, error; union { double d; unsigned int u; unsigned long long full; } value; } field_value;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory;
typedef struct { char old[16]; unsigned int domain, bus, device, id, subsystem; char text[32]; } pci;

static long index_of(device one) { return (long)one - 1; }

int nvmlInitWithFlags(unsigned int flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned int size) { snprintf(text, size, "580.95.05"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = getenv("STUB_GPUS") ? atoi(getenv("STUB_GPUS")) : 8; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device *one) { *one = (device)(long)(index + 1); return 0; }
int nvmlDeviceGetUUID(device one, char *text, unsigned int size) { snprintf(text, size, "GPU-%ld", index_of(one)); return 0; }
int nvmlDeviceGetName(device one, char *text, unsigned int size) { snprintf(text, size, "NVIDIA GeForce RTX 5090"); return 0; }
int nvmlDeviceGetPciInfo_v3(device one, pci *found) { memset(found, 0, sizeof *found); snprintf(found->text, 32, "00000000:%02lX:00.0", index_of(one) + 1); return 0; }
int nvmlDeviceGetMemoryInfo_v2(device one, memory *found) { found->total = 34190917632ull; found->used = 1ull << 30; found->free = found->total - found->used; return 0; }
int nvmlDeviceGetMemoryInfo(device one, unsigned long long *found) { found[0] = 34190917632ull; found[2] = 1ull << 30; found[1] = found[0] - found[2]; return 0; }
int nvmlDeviceGetPowerUsage(device one, unsigned int *milliwatts) { *milliwatts = 300000; return 0; }
int nvmlDeviceGetPowerManagementLimit(device one, unsigned int *milliwatts) { *milliwatts = 575000; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(device one, unsigned int *milliwatts) { *milliwatts = 575000; return 0; }
int nvmlDeviceGetPowerManagementLimitConstraints(device one, unsigned int *low, unsigned int *high) { *low = 400000; *high = 600000; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(device one, unsigned long long *millijoules) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *millijoules = (now.tv_sec * 100ull + now.tv_nsec / 10000000) * 3000; /* 300 W, a step every 10 ms */
    return 0;
}
int nvmlDeviceGetTemperature(device one, int sensor, unsigned int *degrees) { *degrees = 61; return 0; }
int nvmlDeviceGetClockInfo(device one, int kind, unsigned int *megahertz) { *megahertz = 2400; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(device one, unsigned long long *bits) { *bits = 4; return 0; }
int nvmlDeviceGetPerformanceState(device one, int *state) { *state = 0; return 0; }
int nvmlDeviceGetUtilizationRates(device one, unsigned int *rates) { rates[0] = 97; rates[1] = 40; return 0; }
int nvmlDeviceGetFanSpeed(device one, unsigned int *percent) { *percent = 55; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(device one, unsigned int *generation) { *generation = 5; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(device one, unsigned int *lanes) { *lanes = 16; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(device one, unsigned int *generation) { *generation = 5; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(device one, unsigned int *lanes) { *lanes = 16; return 0; }
int nvmlDeviceGetPcieThroughput(device one, int direction, unsigned int *kilobytes) {
    struct timespec window = {0, 20000000};
    nanosleep(&window, NULL); /* as NVML does: it measures for 20 ms */
    *kilobytes = 12000000;
    return 0;
}
int nvmlDeviceGetPcieReplayCounter(device one, unsigned int *replays) { *replays = 0; return 0; }
int nvmlDeviceGetTotalEccErrors(device one, int kind, int counter, unsigned long long *errors) { return 3; }
int nvmlDeviceGetComputeRunningProcesses_v3(device one, unsigned int *count, void *processes) { *count = 0; return 0; }
int nvmlDeviceGetCudaComputeCapability(device one, int *major, int *minor) { *major = 12; *minor = 0; return 0; }
int nvmlDeviceGetPersistenceMode(device one, unsigned int *mode) { *mode = 1; return 0; }
int nvmlDeviceGetFieldValues(device one, int count, field_value *values) {
    for (int at = 0; at < count; at++) {
        unsigned int field = values[at].field;
        values[at].error = field == 82 || field == 185 || field == 186 ? 0 : 3;
        values[at].type = 1;
        values[at].value.u = field == 82 ? 70 : field == 185 ? 299000 : 301000;
    }
    return 0;
}
