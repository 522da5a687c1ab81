// gpu-plugin: STAND-IN of NVIDIA's device plugin and container runtime, on the kubelet's real interface: a container
// gets the device nodes of the GPUs that it was given, nvidia-smi and libcuda, and other containers get nothing.
package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

// control has the device nodes that belong to no GPU.
var control = []string{"nvidiactl", "nvidia-uvm"}

// gpuPlugin offers the GPUs of DIR/gpus (lines `index uuid address`). The device nodes are DIR/nvidiaN and the control's.
func gpuPlugin(dir string) error {
	file, err := os.Open(filepath.Join(dir, "gpus"))
	if err != nil {
		return err
	}
	var devices []*pluginapi.Device
	nodes := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) == 3 {
			devices = append(devices, &pluginapi.Device{ID: f[1], Health: pluginapi.Healthy})
			nodes[f[1]] = "nvidia" + f[0]
		}
	}
	// The kubelet empties the folder of the sockets when it starts.
	for {
		if _, err := os.Stat(pluginapi.KubeletSocket); err == nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	stub := plugin.NewDevicePluginStub(devices, pluginapi.DevicePluginPath+"gpu.sock", "nvidia.com/gpu", false, false)
	stub.SetAllocFunc(func(request *pluginapi.AllocateRequest, _ map[string]*pluginapi.Device) (*pluginapi.AllocateResponse, error) {
		response := &pluginapi.AllocateResponse{}
		for _, container := range request.ContainerRequests {
			ids := container.DevicesIds
			one := &pluginapi.ContainerAllocateResponse{
				Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(ids, ",")},
				Mounts: []*pluginapi.Mount{
					{HostPath: filepath.Join(dir, "nvidia-smi"), ContainerPath: "/usr/bin/nvidia-smi", ReadOnly: true},
					{HostPath: filepath.Join(dir, "libcuda.so.1"), ContainerPath: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", ReadOnly: true},
					{HostPath: filepath.Join(dir, "gpus"), ContainerPath: "/etc/standin/gpus", ReadOnly: true},
				},
			}
			files := append([]string{}, control...)
			for _, id := range ids {
				if nodes[id] == "" {
					return nil, fmt.Errorf("there is no GPU %s", id)
				}
				files = append(files, nodes[id])
			}
			for _, node := range files {
				one.Devices = append(one.Devices, &pluginapi.DeviceSpec{HostPath: filepath.Join(dir, node), ContainerPath: "/dev/" + node, Permissions: "rw"})
			}
			response.ContainerResponses = append(response.ContainerResponses, one)
		}
		return response, nil
	})
	if err := stub.Start(); err != nil {
		return err
	}
	if err := stub.Register(pluginapi.KubeletSocket, "nvidia.com/gpu", pluginapi.DevicePluginPath); err != nil {
		return err
	}
	// Registers again when the kubelet has started again.
	stub.Watch(pluginapi.KubeletSocket, "nvidia.com/gpu", pluginapi.DevicePluginPath)
	return nil
}
